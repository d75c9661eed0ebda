"""Words that tell what a tool does to the world.

*Strong* words mean what they say wherever they stand in a name. The others
count only as a name's first verb: later they are usually nouns (`get_post`,
`list_trash`, `check_transfer_status`). A word that is missing here makes a tool
count as writing, so reading is the one list that must not be generous.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.catalog.words import parse_word_set
from fingerpost.records import Effect

READ_VERBS: Final = parse_word_set(
    """
    analyse analyze ask autocomplete browse calculate check compare compute count describe detect
    diff discover display echo estimate examine exists explain explore extract fetch filter find
    forecast geocode get glob grep has inspect introspect is list locate lookup measure observe
    parse peek preview query read recall research retrieve reason screenshot search show suggest
    summarise summarize transcribe translate validate view whoami
    """
)

# Further verbs with which a description says that its tool reads, or works something out.
READING_WORDS: Final = parse_word_set(
    """
    access aggregate answer assess categorise categorize classify convert decode demonstrate determine
    diagnose divide enumerate examine explore give hash identify illustrate infer investigate look match
    multiply obtain output ping predict present provide rank recommend render return round score see
    subtract sum tell visualise visualize
    """
)

# Nouns that name something to look at, as the last word of a name that has no verb.
READ_NOUNS: Final = parse_word_set(
    "elevation head help history info snapshot stat stats status summary tail time tree weather"
)

# What a tool that reads is called, at the end of its name.
READERS: Final = parse_word_set("finder getter info lookup reader searcher viewer")

STRONG_WRITE_VERBS: Final = parse_word_set(
    """
    add append apply assign attach create disable edit enable increment insert install modify mutate
    publish rename replace reschedule restart save send submit subscribe toggle unassign unsubscribe
    update upload upsert write
    """
)
WRITE_VERBS: Final = STRONG_WRITE_VERBS | parse_word_set(
    """
    accept acknowledge activate adjust allocate annotate approve archive authenticate authorise
    authorize automate backup ban begin block book bookmark broadcast build bump buy change charge
    checkout click clone close comment commit complete compose compress configure copy cordon crop
    decrypt deploy dismiss dispatch downgrade download draft drag duplicate emit encrypt enqueue
    enrich enroll enter escalate export extend fill finalise finalize finish fix follow fork format
    forward generate grant hover import ingest init initialise initialize invite invoke join kickoff
    label launch like link lock login logout make manage mark merge migrate mkdir mount move mute
    navigate normalise normalize note notify optimise optimize orchestrate order patch pause pay
    perform pin play populate post press print promote provision pull purchase push put queue react
    rebase rebuild record redirect refund register reject release reload remember reopen repair
    reply request reserve resize respond restore resume retry roll rotate scale schedule scroll seed
    select set setup share shorten sign simulate snooze spawn speak stage star start stash stop
    store swap switch tag touch train transfer transform transition trigger trim tune tweet type
    unarchive unblock unfollow unlock unmount unmute unpin unstar upgrade vote warm
    """
)
# Writing or reading, depending on the tool: taken for writing unless the server claims otherwise.
AMBIGUOUS_VERBS: Final = parse_word_set(
    """
    connect convert crawl handle load log map monitor open poll process refresh report resolve return scan
    scrape sync test think thinking verify wait watch
    """
)

# Those of them that the description settles, when it says that the tool reads.
SETTLED_BY_DESCRIPTION: Final = parse_word_set("convert load log map poll resolve scan verify wait watch")

STRONG_DESTROY_VERBS: Final = parse_word_set(
    """
    bash cleanup delete destroy discard drop eradicate erase evict exec execute expunge kill nuke
    overwrite powershell purge remove rm rmdir shell shred sudo terminate truncate uninstall unlink
    unpublish unregister wipe
    """
)
DESTROY_VERBS: Final = STRONG_DESTROY_VERBS | parse_word_set(
    """
    abort cancel clear cmd command del deprovision detach drain empty eval evaluate expire flush
    force invalidate prune reboot reset revert revoke rollback run script shutdown trash undo
    """
)

# Two words that together mean something else than the first alone.
VERB_PHRASES: Final[Mapping[tuple[str, str], Effect]] = {
    ("ask", "human"): Effect.WRITE,
    ("ask", "team"): Effect.WRITE,
    ("ask", "user"): Effect.WRITE,
    ("check", "in"): Effect.WRITE,
    ("check", "out"): Effect.WRITE,
    ("convert", "currency"): Effect.READ,
    ("convert", "time"): Effect.READ,
    ("convert", "timezone"): Effect.READ,
    ("convert", "unit"): Effect.READ,
    **dict.fromkeys(
        (
            (verb, thing)
            for verb in ("display", "show")
            for thing in ("ad", "alert", "banner", "popup", "toast")
        ),
        Effect.WRITE,
    ),
    ("display", "dialog"): Effect.WRITE,
    ("display", "notification"): Effect.WRITE,
    ("extract", "archive"): Effect.WRITE,
    ("extract", "file"): Effect.WRITE,
    ("extract", "zip"): Effect.WRITE,
    ("git", "fetch"): Effect.WRITE,
    ("git", "log"): Effect.READ,
    ("show", "dialog"): Effect.WRITE,
    ("show", "message"): Effect.WRITE,
    ("show", "notification"): Effect.WRITE,
    ("sign", "up"): Effect.WRITE,
}

# Pairs that are the name of a thing: neither word is a verb here.
THING_WORDS: Final = frozenset(
    {
        ("pull", "request"),
        ("merge", "request"),
        ("check", "run"),
        ("check", "suite"),
        ("workflow", "run"),
        ("test", "run"),
        ("time", "zone"),
        ("read", "replica"),
        ("read", "receipt"),
        ("read", "status"),
        ("search", "index"),
        ("list", "item"),
        ("time", "entry"),
        ("view", "count"),
    }
)

# Verbs that often open a description as nouns ("Log of a job", "Post details").
NOUN_LIKE: Final = parse_word_set(
    """
    block book build bookmark change checkout command comment commit copy download draft empty
    export force fork generate label like link lock log manage mark note order patch perform play
    post print pull queue record release reply request script select set share sign stage star start
    stash store switch tag touch transfer trash type undo vote
    """
)

TIMESTAMP_WORDS: Final = parse_word_set("at by count date flag marker status time timestamp")  # `delete_time`
# What is kept about a deed: to read it does nothing.
RECORD_WORDS: Final = parse_word_set(
    """
    count counts date event events history info limit limits log logs options permissions policies policy
    rules stats status summary time times
    """
)
CONNECTOR_WORDS: Final = parse_word_set("and or then")


def add_inflections(verbs: frozenset[str]) -> frozenset[str]:
    """The verbs as descriptions say them: `delete` and `deletes`."""
    return verbs | build_third_persons(verbs)


def build_third_persons(verbs: frozenset[str]) -> frozenset[str]:
    """`deletes` for `delete`."""
    return frozenset(map(_build_third_person, verbs))


def _build_third_person(verb: str) -> str:
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}es" if verb.endswith(("s", "sh", "ch", "x", "z")) else f"{verb}s"
