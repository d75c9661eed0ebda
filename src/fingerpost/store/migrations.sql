-- The steps of the schema, in order. A heading may name the one database that its statements are for.
-- {counted} is a key that the database counts, {bytes} the type of binary data.

-- step 1
CREATE TABLE journal (
    seq {counted}, event_id TEXT NOT NULL UNIQUE, at BIGINT NOT NULL,
    kind TEXT NOT NULL, packet_id TEXT, payload TEXT NOT NULL);
CREATE INDEX journal_packet ON journal (packet_id, seq);
CREATE INDEX journal_kind ON journal (kind, seq);
CREATE TABLE audit (
    seq BIGINT NOT NULL PRIMARY KEY, event_id TEXT NOT NULL, at BIGINT NOT NULL,
    kind TEXT NOT NULL, packet_id TEXT, payload TEXT NOT NULL,
    prev_hash TEXT NOT NULL, hash TEXT NOT NULL);
CREATE TABLE audit_head (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1), seq BIGINT NOT NULL, hash TEXT NOT NULL);
INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, '0000000000000000000000000000000000000000000000000000000000000000');
CREATE TABLE pins (key TEXT NOT NULL PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE usage (
    tool TEXT NOT NULL PRIMARY KEY, calls BIGINT NOT NULL, failures BIGINT NOT NULL,
    last_used BIGINT NOT NULL);
CREATE TABLE usage_buckets (
    tool TEXT NOT NULL, measure TEXT NOT NULL, bucket INTEGER NOT NULL, count BIGINT NOT NULL,
    PRIMARY KEY (tool, measure, bucket));
CREATE TABLE approvals (
    pending_id TEXT NOT NULL PRIMARY KEY, record TEXT NOT NULL, created BIGINT NOT NULL,
    expires BIGINT NOT NULL, decision TEXT NOT NULL, decided_by TEXT, decided_at BIGINT,
    decision_reason TEXT, edited_arguments TEXT);
CREATE INDEX approvals_decision ON approvals (decision, created);
CREATE TABLE grants (
    grant_id TEXT NOT NULL PRIMARY KEY, granted_by TEXT NOT NULL, granted_at BIGINT NOT NULL,
    expires BIGINT NOT NULL, one_time BOOLEAN NOT NULL, call_fingerprint TEXT, conversation TEXT,
    operation TEXT, spent_at BIGINT);
CREATE INDEX grants_call ON grants (call_fingerprint);
CREATE INDEX grants_scope ON grants (conversation, operation);
CREATE TABLE cache (
    space TEXT NOT NULL, key TEXT NOT NULL, value {bytes} NOT NULL, size BIGINT NOT NULL,
    expires BIGINT, used BIGINT NOT NULL, PRIMARY KEY (space, key));
CREATE INDEX cache_used ON cache (used);
CREATE TABLE tokens (server TEXT NOT NULL PRIMARY KEY, data {bytes} NOT NULL, saved BIGINT NOT NULL);

-- step 2
CREATE TABLE choices (
    seq {counted}, at BIGINT NOT NULL, request TEXT NOT NULL, tool TEXT NOT NULL,
    worked BOOLEAN NOT NULL, conversation TEXT);
CREATE INDEX choices_conversation ON choices (conversation, seq);

-- step 3
CREATE TABLE confidences (
    seq {counted}, at BIGINT NOT NULL, raw DOUBLE PRECISION NOT NULL, was_right BOOLEAN NOT NULL,
    tool TEXT NOT NULL);

-- step 4
CREATE TABLE api_keys (
    key_id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL, reach TEXT NOT NULL,
    created BIGINT NOT NULL, expires BIGINT, last_used BIGINT, revoked BIGINT);
CREATE INDEX api_keys_name ON api_keys (name);

-- step 5
CREATE TABLE shutters (
    what TEXT NOT NULL, name TEXT NOT NULL, by_whom TEXT NOT NULL, at BIGINT NOT NULL,
    reason TEXT NOT NULL, PRIMARY KEY (what, name));

-- step 6
CREATE TABLE evals (
    seq {counted}, at BIGINT NOT NULL, name TEXT NOT NULL, report TEXT NOT NULL);

-- step 7
CREATE TABLE memories (
    seq {counted}, memory_id TEXT NOT NULL UNIQUE, person TEXT, conversation TEXT, at BIGINT NOT NULL,
    text TEXT NOT NULL);
CREATE INDEX memories_person ON memories (person, seq);

-- step 8
CREATE TABLE feedback (
    packet_id TEXT NOT NULL, by_whom TEXT NOT NULL, at BIGINT NOT NULL, verdict TEXT NOT NULL,
    request TEXT NOT NULL, tool TEXT, should_have TEXT, comment TEXT NOT NULL,
    PRIMARY KEY (packet_id, by_whom));
CREATE INDEX feedback_at ON feedback (at);
CREATE TABLE learned_marks (
    what TEXT NOT NULL, person TEXT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (what, person));
CREATE TABLE thresholds (
    name TEXT NOT NULL PRIMARY KEY, base DOUBLE PRECISION NOT NULL, value DOUBLE PRECISION NOT NULL,
    at BIGINT NOT NULL, reason TEXT NOT NULL, samples BIGINT NOT NULL);
ALTER TABLE choices ADD COLUMN caller TEXT;

-- step 9
CREATE TABLE pin_revision (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1), number BIGINT NOT NULL);
INSERT INTO pin_revision (id, number) VALUES (1, 0);

-- step 10
CREATE TABLE idempotency_keys (
    caller TEXT NOT NULL, key TEXT NOT NULL, call_fingerprint TEXT NOT NULL, tool TEXT NOT NULL,
    call_id TEXT NOT NULL, began BIGINT NOT NULL, expires BIGINT NOT NULL, state TEXT NOT NULL,
    outcome {bytes}, PRIMARY KEY (caller, key));
CREATE INDEX idempotency_keys_expires ON idempotency_keys (expires);

-- step 11
CREATE TABLE instances (
    instance_id TEXT NOT NULL PRIMARY KEY, seen BIGINT NOT NULL, lease_s DOUBLE PRECISION NOT NULL,
    since_seq BIGINT NOT NULL);
CREATE TABLE claims (name TEXT NOT NULL PRIMARY KEY, instance_id TEXT NOT NULL);

-- step 12
CREATE TABLE preferences (caller TEXT NOT NULL PRIMARY KEY, effort TEXT NOT NULL);

-- step 13
ALTER TABLE journal ADD COLUMN conversation TEXT;
CREATE INDEX journal_conversation ON journal (conversation, seq) WHERE conversation IS NOT NULL;

-- The writer numbers the events, because one row holds several. The row of the head orders the writers: a
-- number becomes visible after all lower ones.
-- step 14
CREATE TABLE journal_head (id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1), seq BIGINT NOT NULL);
INSERT INTO journal_head (id, seq) SELECT 1, coalesce(max(seq), 0) FROM journal;

-- step 14 postgresql
ALTER TABLE journal ALTER COLUMN seq DROP IDENTITY;

-- Each process has an audit chain of its own. The only chain so far becomes the first one and goes on.
-- SQLite cannot change the type of a column, and takes as long to rename a table as to create twenty.
-- step 15 sqlite
CREATE TABLE audit_before AS SELECT * FROM audit;
DROP TABLE audit;
CREATE TABLE audit (
    seq {counted}, event_id TEXT NOT NULL, at BIGINT NOT NULL, kind TEXT NOT NULL, packet_id TEXT,
    payload TEXT NOT NULL, prev_hash TEXT NOT NULL, hash TEXT NOT NULL, chain INTEGER NOT NULL,
    number BIGINT NOT NULL);
INSERT INTO audit (seq, event_id, at, kind, packet_id, payload, prev_hash, hash, chain, number)
    SELECT seq, event_id, at, kind, packet_id, payload, prev_hash, hash, 1, seq FROM audit_before ORDER BY seq;
DROP TABLE audit_before;

-- step 15 postgresql
ALTER TABLE audit ADD COLUMN chain INTEGER NOT NULL DEFAULT 1, ADD COLUMN number BIGINT;
UPDATE audit SET number = seq;
ALTER TABLE audit ALTER COLUMN chain DROP DEFAULT, ALTER COLUMN number SET NOT NULL,
    ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY;
SELECT setval(pg_get_serial_sequence('audit', 'seq'), coalesce(max(seq), 0) + 1, false) FROM audit;

-- step 15
CREATE UNIQUE INDEX audit_chain ON audit (chain, number);
CREATE TABLE audit_head_before AS SELECT * FROM audit_head;
DROP TABLE audit_head;
CREATE TABLE audit_head (
    chain INTEGER NOT NULL PRIMARY KEY, seq BIGINT NOT NULL, hash TEXT NOT NULL,
    owner TEXT NOT NULL, leased_until BIGINT NOT NULL);
INSERT INTO audit_head (chain, seq, hash, owner, leased_until)
    SELECT 1, seq, hash, '', 0 FROM audit_head_before;
DROP TABLE audit_head_before;
CREATE TABLE pruned (chain INTEGER NOT NULL PRIMARY KEY, seq BIGINT NOT NULL, hash TEXT NOT NULL);

-- step 16
CREATE TABLE known_servers (
    server TEXT NOT NULL, entry TEXT NOT NULL, listed_at BIGINT NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (server, entry));

-- step 17
CREATE TABLE pins_before AS SELECT * FROM pins;
DROP TABLE pins;
CREATE TABLE pins (
    entry TEXT NOT NULL, key TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (entry, key));
INSERT INTO pins SELECT known_servers.entry, pins_before.key, pins_before.record
    FROM pins_before JOIN known_servers
    ON substr(pins_before.key, 1, length(known_servers.server) + 1) = known_servers.server || '/';
INSERT INTO pins SELECT '', key, record FROM pins_before
    WHERE key NOT IN (SELECT key FROM pins);
DROP TABLE pins_before;

-- step 18
CREATE TABLE data_sources (
    trail TEXT NOT NULL, tool TEXT NOT NULL, label TEXT NOT NULL, call_id TEXT NOT NULL,
    at BIGINT NOT NULL, PRIMARY KEY (trail, tool, label));
CREATE INDEX data_sources_at ON data_sources (at);
CREATE TABLE stored_marks (seq {counted}, mark BIGINT NOT NULL);

-- step 19
CREATE TABLE users (name TEXT NOT NULL PRIMARY KEY, record TEXT NOT NULL, created BIGINT NOT NULL);
CREATE TABLE quotas (quota_id TEXT NOT NULL PRIMARY KEY, record TEXT NOT NULL, created BIGINT NOT NULL);
CREATE TABLE quota_use (
    subject TEXT NOT NULL, measure TEXT NOT NULL, period BIGINT NOT NULL, used DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (subject, measure, period));
CREATE TABLE quota_slots (
    subject TEXT NOT NULL, instance_id TEXT NOT NULL, held BIGINT NOT NULL,
    PRIMARY KEY (subject, instance_id));

-- step 20
CREATE TABLE messages (
    seq {counted}, sender TEXT NOT NULL, topic TEXT NOT NULL, body TEXT NOT NULL, at BIGINT NOT NULL);
CREATE TABLE mcp_sessions (
    session_id TEXT NOT NULL PRIMARY KEY, record TEXT NOT NULL, seen BIGINT NOT NULL);
CREATE INDEX mcp_sessions_seen ON mcp_sessions (seen);
