"""What to do when a call failed: a sentence for the model, a few plain ones for a person.

The model gets `get_advice`: one next step for each kind of error, with the tool's
signature where that helps. A person gets `build_guidance` when everything was tried. Its
plain part is made from the kinds of errors only; the words of servers and of
exceptions stay in `technical`, for whoever asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fingerpost.catalog import escape_invisible_except
from fingerpost.catalog.words import split_words
from fingerpost.frozen import frozen
from fingerpost.records import Attempt, Decision, ErrorKind, Outcome, Pending
from fingerpost.redaction import scrub
from fingerpost.servers.caller import FAULT

_MAX_HINT_LENGTH: Final = 400
_MAX_REASON_LENGTH: Final = 2_000
_MAX_DETAIL_LENGTH: Final = 600
_MAX_NEAR: Final = 5
_MAX_TRIED: Final = 8

_ADVICE: Final[Mapping[ErrorKind, str]] = {
    ErrorKind.TOOL_NOT_FOUND: "No tool has this name. Use the exact name of a tool you were offered.",
    ErrorKind.INVALID_PARAMETERS: "The arguments do not fit. Correct them and call the same tool again.",
    ErrorKind.EXECUTION_FAILED: "The tool itself failed. Do not repeat the same call: change the arguments "
    "if the message says what is wrong with them, else try another way or another tool.",
    ErrorKind.AUTHORIZATION_REQUIRED: "A person has to allow this call first and has been asked. "
    "Wait; do not call again and do not look for a way around.",
    ErrorKind.OPERATION_NOT_SUPPORTED: "This tool does not have that operation. Use one that it has.",
    ErrorKind.TIMEOUT: "The tool took too long. Ask for less at once: smaller steps, a narrower search, "
    "fewer items. Whether it took effect is not known: look before you repeat what changes something. "
    "A person can give it longer: `call.timeout`, or `timeout_ms` for this tool in `[[tools]]`.",
    ErrorKind.CANCELLED: "A person did not allow this. Do not ask for it again and do not do it another way; "
    "go on without it, or tell the person what cannot be done without it.",
    ErrorKind.DENIED: "A rule forbids this call. It will not be allowed by repeating or rewording it: "
    "use another tool, or tell the person what is not permitted.",
    ErrorKind.UNAVAILABLE: "The tool cannot be reached at the moment. Use another tool, or go on without it "
    "and say so; do not repeat the call at once.",
    ErrorKind.LOOP: "This call was made several times with the same outcome. Stop repeating it: use the "
    "result you already have, change the arguments, or take another way.",
    ErrorKind.DUPLICATE: "This call was not run, because it repeats a write that was made just now. If a "
    "second one is meant, call it again, by itself.",
    ErrorKind.UNKNOWN: "Nobody knows whether this call took effect. Check the state of things with a reading "
    "tool before you repeat it.",
}


def get_advice(error: ErrorKind, *, signature: str = "", near: Sequence[str] = (), hint: str = "") -> str:
    """What the model should do next after this error."""
    said = [_ADVICE[error]]
    if near:
        said.append(f"Nearest: {', '.join(_sanitize_line(name, 100) for name in near[:_MAX_NEAR])}.")
    if signature:
        said.append(f"Its signature: {_sanitize_line(signature, 2_000)}")
    if hint:
        said.append(_sanitize_line(hint, _MAX_HINT_LENGTH))
    return " ".join(said)


def get_advice_after_decision(pending: Pending) -> str:
    """What the model should know and do after a person did not allow its call."""
    if pending.decision is Decision.EXPIRED:
        return (
            "No person decided about this call in time, so it did not run. Do not ask for it again and do "
            "not do it another way; tell the person what was not done."
        )
    reason = _sanitize_line(pending.decision_reason or "", _MAX_REASON_LENGTH)
    said = f'Their reason: "{reason}".' if reason else "They gave no reason."
    return (
        f"{_sanitize_line(pending.decided_by or 'A person', 100)} rejected "
        f"this call, so it did not run. {said} "
        "Do not ask for it again and do not do it another way; go on without it, or tell the person what "
        "cannot be done without it."
    )


@frozen
class FailureGuidance:
    """For a person, when everything failed. `technical` is shown only to whoever asks."""

    summary: str
    tried: tuple[str, ...]
    can_change: tuple[str, ...]
    rephrase: str
    technical: tuple[str, ...] = ()

    def render(self, *, technical: bool = False) -> str:
        """All of it as a short message."""
        lines = [self.summary] if self.summary else []
        for heading, items in (("What was tried:", self.tried), ("What you can do:", self.can_change)):
            if items:
                lines += ["", heading, *(f"- {item}" for item in items)]
        if self.rephrase:
            lines += ["", self.rephrase]
        if technical and self.technical:
            lines += ["", "Technical details:", *(f"- {item}" for item in self.technical)]
        return "\n".join(lines).lstrip("\n")


_OUTCOMES: Final[Mapping[ErrorKind, str]] = {
    ErrorKind.TOOL_NOT_FOUND: "there is no such tool",
    ErrorKind.INVALID_PARAMETERS: "it did not understand what it was asked",
    ErrorKind.EXECUTION_FAILED: "it ran into a problem of its own",
    ErrorKind.AUTHORIZATION_REQUIRED: "it needs your permission first",
    ErrorKind.OPERATION_NOT_SUPPORTED: "it cannot do that",
    ErrorKind.TIMEOUT: "it did not answer in time",
    ErrorKind.CANCELLED: "it was not allowed to run",
    ErrorKind.DENIED: "a rule does not permit it",
    ErrorKind.UNAVAILABLE: "it could not be reached",
    ErrorKind.LOOP: "it kept giving the same answer",
    ErrorKind.DUPLICATE: "it repeated a change that was made just now, so it was not run",
    ErrorKind.UNKNOWN: "it was interrupted, and may or may not have done its work",
}

_CAN_CHANGE: Final[Mapping[ErrorKind, tuple[str, ...]]] = {
    ErrorKind.TOOL_NOT_FOUND: (
        "See what there is: fingerpost tools",
        "Add a server that offers such a tool",
    ),
    ErrorKind.INVALID_PARAMETERS: ("Say exactly which file, place, date or name you mean",),
    ErrorKind.EXECUTION_FAILED: (
        "Check that what you asked about exists and that you may see it",
        "Try again in a few minutes",
    ),
    ErrorKind.AUTHORIZATION_REQUIRED: ("Allow or reject it: fingerpost approvals",),
    ErrorKind.OPERATION_NOT_SUPPORTED: ("Ask for something the tool can do: fingerpost tools",),
    ErrorKind.TIMEOUT: (
        "Ask for less at once",
        "Allow the tool more time: timeout_ms under [[tools]] in fingerpost.toml",
    ),
    ErrorKind.CANCELLED: ("Ask again and allow it, if it was rejected by mistake",),
    ErrorKind.DENIED: ("Change the rule under [[policy]] in fingerpost.toml, if it is yours to change",),
    ErrorKind.UNAVAILABLE: (
        "See which servers are up: fingerpost doctor",
        "Try again in a few minutes",
    ),
    ErrorKind.LOOP: ("Say what is missing in the answer so far",),
    ErrorKind.DUPLICATE: ("Ask for it again, if it is meant a second time",),
    ErrorKind.UNKNOWN: ("Look whether it happened before you ask for it again",),
}

_REPHRASE: Final[Mapping[ErrorKind, str]] = {
    ErrorKind.TOOL_NOT_FOUND: "Say what you want to know or to happen, rather than which tool to use.",
    ErrorKind.INVALID_PARAMETERS: "Name the details: “the weather in Haifa on 3 May”, not “the weather”.",
    ErrorKind.EXECUTION_FAILED: "Ask in other words, or for one part of it: "
    "“the opening hours of the city library” instead of “everything about the library”.",
    ErrorKind.TIMEOUT: "Ask for a smaller piece first: one question, one file, one month.",
    ErrorKind.UNAVAILABLE: "Ask the same later, or ask for what can be answered without this tool.",
    ErrorKind.OPERATION_NOT_SUPPORTED: "Describe the result you want; there may be another way to it.",
    ErrorKind.LOOP: "Ask for what differs from the answers so far, or narrow the question.",
    ErrorKind.DENIED: "Ask for something that only reads, or have the rule changed first.",
}


def build_guidance(
    attempts: Sequence[Attempt],
    error: ErrorKind,
    *,
    tool: str = "",
    detail: str = "",
    hint: str = "",
    fix: str = "",
) -> FailureGuidance:
    """What to tell a person after this error ended a call with these attempts.

    Where the error itself says in our own words what helps (`fix`), that takes the place of what is said
    of such errors in general.
    """
    if fix:
        return FailureGuidance(
            summary="",
            tried=_list_tried(attempts),
            can_change=(_sanitize_line(fix, _MAX_HINT_LENGTH),),
            rephrase="",
            technical=_list_technical(attempts, error, detail, hint),
        )
    kinds = dict.fromkeys([error, *(one.error for one in attempts if one.error is not None)])
    changes = dict.fromkeys(change for kind in kinds for change in _CAN_CHANGE[kind])
    return FailureGuidance(
        summary=_summarise(attempts, error, tool),
        tried=_list_tried(attempts),
        can_change=tuple(changes)[:4],
        rephrase=_REPHRASE.get(error, ""),
        technical=_list_technical(attempts, error, detail, hint),
    )


_KNOWN_TYPES: Final[Mapping[str, str]] = {
    "FileNotFound": "{path} does not exist",
    "PermissionDenied": "{path} may not be opened: the system does not permit it",
    "FileExists": "{path} exists already",
}


def explain_to_person(outcome: Outcome) -> str:
    """Why a call failed, in words that are ours; empty where only the server has any.

    A server of our own writes for people, and what the system says of a path is known.
    """
    meta = (outcome.result or {}).get("_meta")
    if outcome.metadata.get("untrusted") is not True or (isinstance(meta, Mapping) and FAULT in meta):
        return outcome.content
    known = _KNOWN_TYPES.get(str(outcome.metadata.get("error_type", "")), "")
    path = _sanitize_line(str(outcome.metadata.get("attemptedPath", "")), _MAX_HINT_LENGTH)
    return known.format(path=path) if path else ""


def format_tool_name(key: str) -> str:
    """`perplexity/perplexity_research` → `perplexity research`: a name a person can say."""
    server, _, name = key.partition("/")
    spoken = list(split_words(name or server))
    if not spoken:
        return _sanitize_line(key, 60) or "the tool"
    said = " ".join(spoken)
    return _sanitize_line(
        said if not name or split_words(server)[:1] == tuple(spoken[:1]) else f"{said} ({server})", 60
    )


def _summarise(attempts: Sequence[Attempt], error: ErrorKind, tool: str) -> str:
    tools = dict.fromkeys(one.tool for one in attempts)
    if len(tools) > 1:
        return f"This could not be done: {len(tools)} tools were tried and none succeeded."
    name = format_tool_name(tool or next(iter(tools), ""))
    return f"This could not be done with {name}: {_OUTCOMES[error]}."


def _list_tried(attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """One line for each tool, however often it was tried."""
    by_tool: dict[str, list[Attempt]] = {}
    for one in attempts:
        by_tool.setdefault(one.tool, []).append(one)
    said: list[str] = []
    for tool, tries in by_tool.items():
        last = tries[-1]
        outcome = "it gave nothing usable" if last.error is None else _OUTCOMES[last.error]
        times = "" if len(tries) == 1 else f", {len(tries)} times"
        said.append(f"{format_tool_name(tool)}{times}: {outcome}{_describe_attempt(last)}")
    more = len(said) - _MAX_TRIED
    return tuple(said[:_MAX_TRIED]) + ((f"and {more} more",) if more > 0 else ())


def _describe_attempt(attempt: Attempt) -> str:
    seconds = attempt.milliseconds / 1000
    return f" (after {seconds:.0f} s)" if seconds >= 1 else ""


def _list_technical(attempts: Sequence[Attempt], error: ErrorKind, detail: str, hint: str) -> tuple[str, ...]:
    said = [
        f"{_sanitize_line(one.tool, 200)}, attempt {one.number}: {one.error or 'no error'} "
        f"after {one.milliseconds:.0f} ms"
        + (f": {_sanitize_line(one.detail, _MAX_DETAIL_LENGTH)}" if one.detail else "")
        for one in attempts
    ]
    said.append(f"{error}" + (f": {_sanitize_line(detail, _MAX_DETAIL_LENGTH)}" if detail else ""))
    if hint:
        said.append(_sanitize_line(hint, _MAX_HINT_LENGTH))
    return tuple(said)


def _sanitize_line(text: str, max_length: int) -> str:
    """On one line, without secrets and without what cannot be seen."""
    said = escape_invisible_except(" ".join(scrub(text[: max_length * 8]).split()))
    return said if len(said) <= max_length else said[: max_length - 1].rstrip() + "…"
