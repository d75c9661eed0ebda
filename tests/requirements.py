"""What Fingerpost promises, and which of it is proven.

Every promise has an id: `A1` … `E12` come from the five source documents, `F…`
are the faults to survive, `N…` narrowing, `W…` the way of a request, `G…` the
gateway, `O…` the OpenAI-compatible endpoint, `I…` the API, `V…` the console,
`P…` the performance goals, `U…` our own servers and profiles, `L…` learning,
`T…` the chat connector, `S…` when servers run, `X…` attacks to withstand, `H…` the house's own.
A test names what it proves with `@proves("A1")`. `test_requirements.py` checks
both directions: every promise has a test or a gap that says what is missing,
and every test that proves something proves a promise listed here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Requirement:
    """A behaviour, and what of it is still missing (None: nothing)."""

    behaviour: str
    gap: str | None = None


def proves(*ids: str) -> Callable[[F], F]:
    """Mark a test as evidence for these promises."""
    unknown = [name for name in ids if name not in REQUIREMENTS]
    if unknown:
        message = f"no such requirement: {', '.join(unknown)}"
        raise ValueError(message)
    return pytest.mark.proves(*ids)


_OPEN = "not built yet"

REQUIREMENTS: dict[str, Requirement] = {
    # A. Cognition-packet tool routing
    "A1": Requirement("A request is a packet with all its sections; JSON and back without loss"),
    "A2": Requirement("Whether a tool is needed is decided before any selection"),
    "A3": Requirement("Selection is one low-temperature structured call; junk never executes"),
    "A4": Requirement("The prime model reviews; not approved caps at 0.5, a failed review is 0.0"),
    "A5": Requirement("Below the threshold nothing runs without a person's approval"),
    "A6": Requirement("The execution status moves only along allowed steps, each recorded"),
    "A7": Requirement("A lite and a prime model, each standing in for the other"),
    "A8": Requirement("ai.read, ai.write, ai.execute and embedding.query work through MCP"),
    "A9": Requirement("Write and execute tools dry-run until two switches allow them"),
    "A10": Requirement("The result is injected into the packet; the final answer uses it"),
    "A11": Requirement("Reinjection is counted and capped; at the cap the packet is answered"),
    "A12": Requirement("Selection, review, decision and execution are reflected and audited"),
    "A13": Requirement("The settings block tool_routing with its seven values; off, no model is sent a tool"),
    "A14": Requirement("The ten system tasks exist on the packet and are scheduled where they happen"),
    "A15": Requirement(
        "Invented tool syntax never reaches the user",
        'a call as data under one everyday word (`{"translator": {…}}`) still passes: a rule by the request '
        "stopped 8 of 10 unseen calls and took 8 of 10 unseen honest answers as well; and a block after "
        '"Run:" with one unknown call is stopped even where the request asks what to run (`undecided.jsonl`)',
    ),
    "A16": Requirement(
        "Measured: the right tool, calibrated confidence, little added time",
        "added time is measured (`make bench`), calibration on simulated outcomes; "
        "the right tool more than 90 % of the time needs a strong model, which cannot be had in tests",
    ),
    "A17": Requirement("Chains, learning, run-time registration, parallel calls, cached results"),
    "A18": Requirement("A chat connector end to end"),
    "A19": Requirement(
        "The selection prompt shows parameter examples and which tools need approval; reviews are "
        "short; a selection without confidence counts 0.5; a plan says whether it only reads",
    ),
    "A20": Requirement(
        "The result on the packet says tool, parameters, type and source; sketchpad entries carry a "
        "content type; invented calls that were removed are counted",
    ),
    # B. Tools and instructions
    "B1": Requirement("Definitions and instructions come from one tool record"),
    "B2": Requirement("A knowledge base with six tools"),
    "B3": Requirement("Three routing tools hand over to specialists"),
    "B4": Requirement("Single-decision mode"),
    "B5": Requirement("The system prompt is assembled from persona, tools and directives"),
    "B6": Requirement("What the conversation holds is answered from it"),
    "B7": Requirement("Tool sets by context"),
    "B8": Requirement("Tool sets by persona"),
    "B9": Requirement("Remote tools over HTTP with the caller's API key; the server's errors as they are"),
    "B10": Requirement("Tools by user, usage analytics, adapting instructions, chains"),
    "B11": Requirement(
        "Measured: fewer unnecessary tool uses",
        "unneeded offers are measured (`benchmarks conversations`); added time of direct answers is not",
    ),
    "B12": Requirement("Context building: user, conversation, count, history"),
    "B13": Requirement(
        "A user's preference for quick or thorough answers changes tools and modes; the caller's own "
        "key goes on to the remote service set up for it",
    ),
    # C. Tool execution flow
    "C1": Requirement("OpenAI-format tool calls are parsed; bad arguments become a clear error"),
    "C2": Requirement("Dotted names resolve to tool and operation"),
    "C3": Requirement("Unknown tools are answered with near names"),
    "C4": Requirement("Arguments are validated before execution: missing, wrong type, bad value"),
    "C5": Requirement("Consolidated tools with an operation parameter"),
    "C6": Requirement("Dangerous operations need a grant"),
    "C7": Requirement("One result shape, six kinds of error"),
    "C8": Requirement("Recovery by kind of error"),
    "C9": Requirement(
        "Stable tool order; connections reused",
        "in single and simple mode a changed shortlist must change the native definitions, which providers "
        "put before everything else: 60 to 64 % of what was sent before is known again, and with four tools "
        '(D4) even the right ones known beforehand give 68 to 70 %; `tool_format = "text"` gives 88 to '
        "91 %, ReAct 91 to 93, selection 89 to 92, answers 95",
    ),
    "C10": Requirement("Figures for reads and searches"),
    "C11": Requirement(
        "A result that needs authorization says so in its metadata; user_collaboration can approve; a "
        "failed file operation names its kind and path",
    ),
    "C12": Requirement(
        "isBackground returns a handle at once; grants reach outside the working directory; own tools "
        "have a fixed order; run_command and run_subagent have figures",
    ),
    # D. Orchestration
    "D1": Requirement("The tool intelligence registry: written, inferred, learned, each with its source"),
    "D2": Requirement("Intent detection in Hebrew and English"),
    "D3": Requirement(
        "Universal, explainable scoring",
    ),
    "D4": Requirement("Never more than MAX_TOOLS offered"),
    "D5": Requirement("Cascade fallback"),
    "D6": Requirement("Response optimisation"),
    "D7": Requirement("Parameter normalisation"),
    "D8": Requirement("Time-outs per tool"),
    "D9": Requirement("Loop detection and circuit breaker"),
    "D10": Requirement("Progress by latency tier"),
    "D11": Requirement("A user never sees a raw error"),
    "D12": Requirement("Every new behaviour behind a flag; filtering cached; old and new comparable"),
    "D13": Requirement(
        "Measured: failures, recovery, estimates, truncation",
        "recovery is measured by `make bench`; estimates and truncation over real use are not",
    ),
    "D14": Requirement(
        "The model is told which tools are slow and how large an answer will be; retry conditions and "
        "counts are per tool",
    ),
    "D15": Requirement(
        "A changed behaviour is rolled out by share of conversations, both arms in the figures; "
        "exclusive tools are watched",
    ),
    # E. Smart routing
    "E1": Requirement("Smart routing is on above both thresholds; option and environment decide"),
    "E2": Requirement("One light model call picks servers"),
    "E3": Requirement("The prompt lists servers in a stable order; the full conversation goes in"),
    "E4": Requirement("In doubt more servers; failure means all tools"),
    "E5": Requirement("One model call per conversation picks servers; later turns widen its choice"),
    "E6": Requirement("Events smart_routing_start and smart_routing_end"),
    "E7": Requirement("Metrics of smart routing"),
    "E8": Requirement("Simple and ReAct agent modes"),
    "E9": Requirement("A command compares with and without routing"),
    "E10": Requirement(
        "Measured: fewer tools, fewer tokens, faster",
        "tools, tokens and added time are measured; faster answers need a strong model, which no test has",
    ),
    "E11": Requirement("Cached decisions, feedback, preferences, thresholds that follow results"),
    "E12": Requirement(
        "Command options for the thresholds, a self-test of the fallback, the effect of smart routing "
        "over time as a chart; planning agents' whole context goes in",
    ),
    # F. Faults to survive (those that touch connections, listings and the store; the rest follow)
    "F1": Requirement("A server that crashes mid-call gives an error at once"),
    "F2": Requirement("A hang ends at the deadline and the server is told"),
    "F3": Requirement("A half-closed stream is an error, not partial success"),
    "F4": Requirement("A slow drip ends at the total deadline"),
    "F6": Requirement("A huge result is cut off while reading"),
    "F7": Requirement("An endless stream ends at the byte limit"),
    "F8": Requirement("Invalid JSON is an error"),
    "F9": Requirement("Bytes that are not UTF-8 are an error"),
    "F10": Requirement("A wrong or repeated response id never delivers another caller's result"),
    "F11": Requirement("Both or neither of result and error is an error"),
    "F12": Requirement("404, a lost session or 500: a new handshake at once, a few times; then an error"),
    "F13": Requirement("NaN, Infinity and huge integers: valid JSON out, or an error"),
    "F14": Requirement("A 10,000-deep result is an error"),
    "F15": Requirement("An HTML login page is an error that names signing in"),
    "F16": Requirement("A $ref loop in a schema is listed"),
    "F17": Requirement("A 10,000-deep schema costs that server only"),
    "F18": Requirement("A network $ref is never fetched"),
    "F19": Requirement("One invalid schema drops one tool, with the reason"),
    "F20": Requirement("Equal names are told apart, deterministically"),
    "F21": Requirement("10,000 tools are all reachable"),
    "F22": Requirement("Odd names are escaped or refused, and shown raw"),
    "F23": Requirement("A list that changes mid-session is seen"),
    "F24": Requirement("A changed definition is blocked until accepted"),
    "F25": Requirement("An endless page cursor stops at the page limit"),
    "F26": Requirement("A restarted server recovers by itself"),
    "F27": Requirement("Floods on stderr and junk on stdout do not deadlock"),
    "F28": Requirement("A child that ignores SIGTERM leaves no orphan, nor do its children"),
    "F29": Requirement("A crash loop is backed off: few starts"),
    "F31": Requirement("A cancelled call has exactly one outcome, and the server is told"),
    "F32": Requirement("Of two approvers one decision wins"),
    "F33": Requirement("A one-time grant is spent once, whatever the number of processes"),
    "F34": Requirement("Arguments changed after approval void it"),
    "F35": Requirement("After kill -9 nothing runs twice silently; the outcome reads unknown"),
    "F36": Requirement("An approval expires, and a clock that jumps does not prolong it for ever"),
    "F37": Requirement("When the store cannot write, nothing dangerous runs"),
    "F38": Requirement("A locked or corrupt database: bounded wait, clear error"),
    "F39": Requirement("An edited or deleted audit row is detected"),
    "F40": Requirement("Circular fallbacks end, each target tried once"),
    "F41": Requirement("A half-open breaker lets only its trials through"),
    "F42": Requirement("All servers down at the start: it starts, and says so"),
    "F47": Requirement("The same call again and again, or A-B-A-B, is stopped"),
    "F48": Requirement("Instructions inside a result are marked as data; what changes something then asks"),
    "F49": Requirement("A secret in arguments, results or errors is masked everywhere"),
    # N. Narrowing
    "N1": Requirement("What policy hides from a caller is never found"),
    "N2": Requirement(
        "Words serve at once while vectors are made, likely tools first; a changed one is encoded alone"
    ),
    "N3": Requirement("A request that asks for several things gets tools for each"),
    "N4": Requirement("Every candidate says by signal why it stands where it does, every loser why it lost"),
    "N5": Requirement("Hebrew requests find tools described in English, offline"),
    "N6": Requirement("Junk requests and odd catalogs get an answer"),
    "N7": Requirement("Routing is measured on any set: predictions, figures, comparisons, gates"),
    # W. Choosing and answering: the way of a request
    "W1": Requirement("The five journeys: every decision is an event, the same for the same request"),
    "W2": Requirement("A request that waits for a person goes on after a restart, and only once"),
    "W3": Requirement("Turns, tokens, seconds and money are bounded; the end comes with guidance"),
    "W4": Requirement("Without a model: what is certain is done, the rest is asked, and it is said"),
    "W5": Requirement(
        "The wire of models: streams, cuts, overload, time-outs, on a server with real weights"
    ),
    "W6": Requirement("A model that fails is stood in for; with none left, the way without one is taken"),
    "W7": Requirement("Prompts begin alike: tools keep their places through a conversation"),
    "W8": Requirement("Routing is switched live from any thread; programs embed an agent"),
    "W9": Requirement("ask and chat: streaming, progress, approvals, questions, explanation, JSON"),
    "W10": Requirement("Malformed model output never crashes and never runs what was not offered"),
    # G. The gateway
    "G1": Requirement("One address serves both protocol eras at once, over HTTP and stdio"),
    "G2": Requirement("Through the gateway every required conformance scenario passes"),
    "G3": Requirement("route: find, describe, call, read, within budgets; what is hidden is out of reach"),
    "G4": Requirement("all: every permitted tool, unmodified, paged, in a stable order of bytes"),
    "G5": Requirement("A profile is a path with its own tools, instructions and rules"),
    "G6": Requirement("Approvals reach any client: elicitation, input_required, or a note where to approve"),
    "G7": Requirement(
        "A state that goes round by the client is signed, expires, is used once and by its owner"
    ),
    "G8": Requirement("Resources, prompts, completions, progress, logs, questions go through as they are"),
    "G9": Requirement("No caller's token or cookie reaches a server; trace context does"),
    "G10": Requirement("Keys are hashed and scoped; tokens are checked; never open to a network without"),
    "G11": Requirement("Foreign Host or Origin is refused"),
    "G12": Requirement("A client's configuration is changed only after a diff, with a backup"),
    "G13": Requirement("Under load with servers dying every call is answered and memory stays flat"),
    "G14": Requirement("A huge result arrives trimmed with a handle; one bad server hides nothing"),
    "F5": Requirement("A client that sends slowly is cut off; others are served"),
    "F30": Requirement("A client that leaves cancels its call; the audit trail says so"),
    "F50": Requirement("Foreign hosts are refused; servers do not redirect us elsewhere"),
    # O. The OpenAI-compatible endpoint
    "O1": Requirement("The openai clients work, streaming and not, by changing the base URL alone"),
    "O2": Requirement("The request is narrowed before the model runs; routed tools run here"),
    "O3": Requirement("The caller's own tools arrive unchanged; calls of them go back to the caller"),
    "O4": Requirement("Mode, profile, persona and bounds by header, extra_body or model name"),
    "O5": Requirement("Errors have OpenAI's shape and status; nothing raw reaches the caller"),
    "O6": Requirement("A client that leaves cancels the work for it"),
    "O7": Requirement("An approval asked in a chat is given elsewhere and the answer goes on"),
    "O8": Requirement("Usage, considered and used tools and saved tokens come with the answer"),
    # I. The API
    "I1": Requirement("The API is described by OpenAPI and keeps to it; errors are problem details"),
    "I2": Requirement("Packets are listed, filtered, read and followed live, resuming after a break"),
    "I3": Requirement("Without the right a key gets 403; a USE key sees its own requests alone"),
    "I4": Requirement("Approvals are decided once, by the first decision, edited or not"),
    "I5": Requirement("Cookies are same-site; what changes something needs a token no other page has"),
    "I6": Requirement("A caller beyond its rate waits; others do not"),
    "I7": Requirement("Tools and servers are searched, explained, switched off and on while it runs"),
    "I8": Requirement("Figures over time come from the journal: requests, tokens saved, failures"),
    "I9": Requirement("Metrics for Prometheus; health and readiness"),
    "I10": Requirement("Spans per stage with the semantic names of GenAI and MCP, without content"),
    "I11": Requirement("The audit trail is filtered, exported and verified"),
    # V. The console
    "V1": Requirement("Live: requests arrive and open into their journey while it happens"),
    "V2": Requirement("Ask: a request is routed or run, with mode and profile"),
    "V3": Requirement("Approvals: the exact call, decided once, edited or not, from two browsers"),
    "V4": Requirement("Tools and servers: searched, explained, switched"),
    "V5": Requirement("Insight: charts over time"),
    "V6": Requirement("Audit: filtered, exported, verified"),
    "V7": Requirement("Light, dark, keyboard, narrow screens, right to left; no serious axe finding"),
    "V8": Requirement("Hostile text is shown as text; nothing is loaded from elsewhere"),
    "V9": Requirement("The live list stays bounded and quick under load"),
    "V10": Requirement(
        "Records claim only what happened: no approval without a person, no use of a tool that did not run, "
        "the rule by the file it stands in"
    ),
    "V11": Requirement("A tool is tried from a form of its schema: checked, then run through the call path"),
    "V12": Requirement("Servers are added, edited and removed from a form or pasted JSON, tried before"),
    "V13": Requirement(
        "Dry runs, rejections and questions are shown as such; a question is answered on its request's page"
    ),
    # U. Our own servers, and profiles
    "U1": Requirement("Our own servers are MCP servers, in this process or alone; calls of them go one path"),
    "U2": Requirement("Files: sixteen operations, atomic writes, any encoding, huge files"),
    "U3": Requirement(
        "No path leads out of the working directory, whatever it is made of, unless a person grants that call"
    ),
    "U4": Requirement("Commands have limits and leave nothing running; an allow-list holds"),
    "U5": Requirement("A dry run shows the diff or the exact command, and how to switch it on"),
    "U6": Requirement("Notes are re-indexed as they change; links and front matter are understood"),
    "U7": Requirement("A synthesis cites its sources, with a model and without"),
    "U8": Requirement("A server of our own is reachable over HTTP with a key, and not without"),
    "U9": Requirement("Memories belong to a person, can be forgotten and hold no secrets"),
    "U10": Requirement("A question reaches the person on whichever surface they are"),
    "U11": Requirement("A subagent is a nested packet in a trace and ends with its budget"),
    "U12": Requirement("Several experts at once, one synthesis, one budget, disagreements named"),
    "U13": Requirement("Assets are really made, kept and referred to, not pasted"),
    "U14": Requirement("A profile is a file, validated, reloaded while running, on every surface"),
    "U15": Requirement("Directive tools give structured directives for a client to act on"),
    # L. Learning
    "L1": Requirement("Outcomes and feedback (good, bad, should have used X) are recorded"),
    "L2": Requirement("A mistake corrected three times stays corrected"),
    "L3": Requirement("An evaluation on one's own requests shows no loss elsewhere"),
    "L4": Requirement("Decisions for similar requests are remembered for a while"),
    "L5": Requirement("Preferences of a person count for that person alone"),
    "L6": Requirement("Thresholds follow measured results, within bounds"),
    "L7": Requirement("What was learned can be seen, explained and reset"),
    # T. The chat connector
    "T1": Requirement("Mentions and direct messages become packets, threads conversations"),
    "T2": Requirement("Approvals are buttons that only the right people can press"),
    "T3": Requirement("Progress edits one message; long answers are split well"),
    "T4": Requirement("Files come in and go out through the store"),
    # X. Attacks to withstand
    "X1": Requirement("What a server may ask in one call is bounded; a failed call fails alone"),
    "X2": Requirement("Deciding about a call needs a secret that no model and no tool has"),
    "X3": Requirement("A person who may approve a call sees its exact arguments"),
    "X4": Requirement("A grant covers its caller, its conversation, its tool and its target alone"),
    "X5": Requirement(
        "An allowed command runs only what its rule says, in a sandbox where there is one; what runs files "
        "of the folder asks once a caller has written there, also through another server"
    ),
    "X6": Requirement("An elicitation answer approves only for a caller who may approve"),
    "X7": Requirement("A huge result delays no other caller and takes bounded memory"),
    "X8": Requirement(
        "Only a certain read runs unasked; a person who manages tools can keep the answer about another one"
    ),
    "X9": Requirement("No answer names a tool or a setting outside of the caller's bounds"),
    "X10": Requirement("New tools and changed instructions of a known server are reviewed first"),
    "X11": Requirement("Slots, queues and waiting approvals are shared fairly by caller"),
    "X12": Requirement("A damaged database is found at the start"),
    "X13": Requirement("The audit trail can be anchored elsewhere and verified against that"),
    "X14": Requirement(
        "Left-over processes, echoed secrets, link-local servers, reused key names, file modes, the "
        "installation's secret outside of the database"
    ),
    "X15": Requirement(
        "Invisible and control characters in definitions, results and prompts are removed or shown"
    ),
    "X16": Requirement(
        "Once untrusted or private data is in a conversation, calls that write or send ask a person, by "
        "preset; the approval shows where each value comes from",
        gap="on AgentDojo `default` asks for 91 calls (before: 109, goal: 36), `autonomous` for 25 % of the "
        "user calls (goal: 15 %): at least 20 % are like injected calls, all of which are held; a call takes "
        "2 to 11 % more CPU on a noisy machine (goal: 5 %; 2.6 to 5.4 % on a quiet one)",
    ),
    "X17": Requirement("No encoding, storage or detour makes an injected value the person's own"),
    "X18": Requirement(
        "Where data came from, resources and prompts included, is known after restarts, in other processes "
        "and in sessions of the gateway"
    ),
    # P. Performance goals
    "P9": Requirement("Help and import stay light: no heavy library is loaded"),
    # H. The project itself
    "H1": Requirement("File, environment and arguments merge in that order, each value with its origin"),
    "H2": Requirement("Every configuration error names file, line and fix"),
    "H3": Requirement("mcpServers files of Claude Desktop, Cursor and VS Code are read as they are"),
    "H4": Requirement("The store behaves the same on SQLite and PostgreSQL"),
    "H5": Requirement("An acknowledged write survives kill -9; writes share flushes"),
    "H6": Requirement("The audit trail is a hash chain that can be verified"),
    "H7": Requirement("The schema migrates forward and refuses what is newer"),
    "H8": Requirement("Servers connect in parallel; a dead or slow one delays no other"),
    "H9": Requirement("A lost server is reconnected with capped, jittered waits"),
    "H10": Requirement("A changed tool list is noticed in both eras"),
    "H11": Requirement("stdio, streamable HTTP in both eras, legacy SSE and in-process servers connect"),
    "H12": Requirement("One connection serves concurrent calls; all HTTP shares one client"),
    "H13": Requirement("Upstream sign-in by OAuth; tokens stored and refreshed"),
    "H14": Requirement("stderr of a child is kept in a bounded ring"),
    "H15": Requirement("Exposed names: at most 64 characters, unique, stable"),
    "H16": Requirement("The effect of a tool is judged, with the source of the judgement"),
    "H17": Requirement("Snapshots are immutable, versioned, in deterministic order; changes are events"),
    "H18": Requirement("Typical latency and size are learned as running quantiles"),
    "H19": Requirement("Commands print tables or JSON, with sensible exit codes"),
    "H20": Requirement("Existing client configurations are found and merged"),
    "H21": Requirement("doctor says what is wrong, in order of what to fix"),
    "H22": Requirement("A slow live reader loses its oldest events with a marker; writers never wait"),
    "H23": Requirement("A packet's state is rebuilt from its journal"),
    "H24": Requirement("Every code block in the documentation runs"),
    "H25": Requirement("Events have a schema version; unknown ones are kept, not lost"),
    "H26": Requirement(
        "Programs and packages add scorers, rules, sinks, models and servers; one that fails is left out and "
        "said to be, and a rule that fails denies"
    ),
    "H27": Requirement("Each process that writes has an audit chain of its own; verifying checks them all"),
    "H28": Requirement(
        "A read is one row of the journal and one of the audit trail; a write is on record before it is sent"
    ),
    "H29": Requirement("Old rows are removed in small steps by age and size; the trail stays verifiable"),
    "H30": Requirement(
        "Command, API and console show the size of the store; commands prune, export and back it up"
    ),
    "H31": Requirement(
        "In programs, an unknown option is refused with the nearest name, a traceback says what to do, a "
        "router without a store keeps nothing outside memory, and help() describes every field"
    ),
    "H32": Requirement("The documentation is a site with checked links, served whole under /docs"),
    "H33": Requirement(
        "The wheel holds the whole package and nothing else; installed into an empty environment it does "
        "what three newcomers try first"
    ),
    "S1": Requirement("A known server is listed from the store and started by the first call that needs it"),
    "S2": Requirement("A tool that changed while its server slept is not called"),
    "S3": Requirement("An idle program is stopped and woken; no call is lost or run twice"),
    "S4": Requirement("Each server, or all, can run on demand, from the start, or always"),
    "Q1": Requirement(
        "Without a model, the only repository or directory of a server stands for one that is not named"
    ),
    "Q2": Requirement("Without a model a question never leads to a tool that changes something"),
    "Q3": Requirement(
        "Meanings are compared by an encoder of one's own, from a folder or an endpoint; its vectors are "
        "kept, and words decide while it is away"
    ),
    "Q4": Requirement("A reranker or the light model orders tools with close scores, within its time"),
    "Q5": Requirement("The share of meaning is fitted to one's own set, judged on queries not fitted on"),
    "Q6": Requirement(
        "A long request that needs several tools gets those of the servers it is about",
        gap="all needed tools are among the first ten in 37 % of the requests of MCP-Bench (goal 45 %); it "
        "would be 41 % if the right servers were known, and 36 % of them need more than ten tools",
    ),
    "Q7": Requirement(
        "A request in one of twelve further languages finds tools described in English, offline",
        gap="names in other scripts are lost, and so are words that the tables do not have",
    ),
    "Q8": Requirement("Without a model, the operation of a tool that a request orders is chosen and filled"),
    "S5": Requirement("Commands use the connections of a running gateway of the same store and entry"),
    "S6": Requirement(
        "Servers are added, changed and removed by command and API, tried first, in one file that keeps all "
        "else as it is; only who may manage does so"
    ),
    "S7": Requirement(
        "Changed settings files apply while Fingerpost runs; what cannot apply is said, the rest goes on"
    ),
    "S8": Requirement(
        "A pin belongs to the entry of a server: a changed entry is a new server, an unchanged one is held "
        "to its pins, and every surface says why tools are missing"
    ),
    "S12": Requirement(
        "The encoder of a service is a process that ends when it is idle and with the service; if it dies it "
        "is started again, and without it tools are found by words",
        gap="an idle gateway with 50 servers holds 129 MiB, but 137 if it had to start them to list them "
        "(goal: 130)",
    ),
    "S9": Requirement("A built-in server gives way to a configured server of its name"),
    "S10": Requirement(
        "One command says what runs here; what servers write is kept in bounded logs that only their owner "
        "can read, without secrets"
    ),
    "S11": Requirement(
        "`install` writes absolute paths and this shell's PATH, moves a client's other servers on request "
        "and back again, and a client without tools is told why"
    ),
    "M20": Requirement(
        "With exchange each caller acts at a server with a token that the own one was exchanged for, and the "
        "own one never reaches it"
    ),
    "M21": Requirement(
        "A client that can open URLs is asked to send its user to the page of the sign-in that a call needs; "
        "the page is for that user and server alone, and the repeated call works"
    ),
    "M22": Requirement(
        "The authorization scenarios that the MCP conformance suite requires of clients pass through the "
        "gateway in both revisions"
    ),
    "M23": Requirement(
        "People sign on to the console at an OpenID provider, with the roles that their claims give; a wrong "
        "state, nonce, audience or issuer signs no one on"
    ),
    # M. Teams
    "M1": Requirement(
        "Sign-in tokens are encrypted at rest, the secret can be replaced, and a store without it says so"
    ),
    "M2": Requirement("Signing out deletes the stored tokens and revokes them at the authorization server"),
    "M5": Requirement(
        "With per_user each user acts at a server with the own account, and never with another's"
    ),
    "M40": Requirement(
        "Behind a load balancer without stickiness, any instance on one PostgreSQL serves what another one "
        "began: sessions, questions, cancellations, subscriptions, streams, approvals, results, "
        "switched-off tools, profiles, keys and sign-ins"
    ),
    "M41": Requirement(
        "When an instance is killed, the database restarted or the network to it cut, no acknowledged write "
        "is lost or repeated, no approval is used twice, and everything heals by itself"
    ),
    "M42": Requirement(
        "`serve --workers N` runs processes that share a port, sessions, metrics and the programs of "
        "servers; one that ends is started again"
    ),
    "M4": Requirement("A client signs in to a server by its own credentials, at the named issuer alone"),
    "M3": Requirement(
        "The container, Compose, Kubernetes and systemd files pass their linters and give valid settings"
    ),
    "X20": Requirement(
        "Each tool says, with the reason, whether it brings in untrusted content, reads private data or "
        "sends data out; the operator's word wins"
    ),
    "X21": Requirement(
        "Poisoned definitions and instructions are found with the words they rest on and hidden until a "
        "person accepts them; harmless ones are left alone",
        gap="85 to 96 % of the definitions by authors of whom nothing was known are found (goal: 95 %), and "
        "0 to 4 % of hard harmless ones have a finding, of long pages 10 % (goal: 2 %)",
    ),
    "X22": Requirement(
        "Text in a result that addresses the model is fenced, its invisible characters are written out, it "
        "is marked in the trace, and its conversation counts as untrusted"
    ),
    "M30": Requirement(
        "Quotas for users, keys and profiles hold for all processes together, never admit more than their "
        "limit, say when to try again, and a killed process leaves no slot taken"
    ),
    "M32": Requirement(
        "Users, keys, quotas and sign-ins are listed, made, changed and revoked over the API, which OpenAPI "
        "describes; changes are audited and apply within seconds"
    ),
    "M31": Requirement(
        "Roles (user, approver, operator, admin) are given to keys and by claims of tokens, and decide at "
        "every endpoint; keys from before keep their rights"
    ),
}
