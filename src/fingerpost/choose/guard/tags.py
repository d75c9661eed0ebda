"""Tags by their names: which are nobody's ordinary markup, which may be a call's, and how each ends."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard.vocabulary import split_words

# Tags, by their name without case, name space, separators. Strong ones are nobody's ordinary markup.
_STRONG_TAG_TABLE: Final = {
    "hermes": "toolcall toolcalls toolscall",
    "claude": "functioncalls antmlfunctioncalls antmlinvoke",
    "gemma": "toolcode startfunctioncall callfunction",
    "granite": "functioncall",
    "xml": (
        "tooluse tooluses usetool usemcptool toolrequest toolinvocation toolcalling calltool runtool"
        " executetool"
        " invoketool mcpcall mcptoolcall apicall toolname toolinput toolargs toolarguments functionname"
        " toolresponse toolresult toolresults tooloutput tooloutputs functionresult functionresults"
        " functionresponse functionoutput toolparameters accessmcpresource xaitoolcall toolaction"
        " toolexecution"
    ),
    "nemotron": "toolcallnemotron",
    "hebrew": "קריאהלכלי קריאותלכלי קריאתכלי הפעלתכלי שימושבכלי קריאהלפונקציה תוצאתכלי",
    "thought": "think thinking thought thoughts reasoning reflection scratchpad innermonologue antmlthinking",
}
STRONG_TAGS: Final = {
    name: syntax for syntax, names in _STRONG_TAG_TABLE.items() for name in split_words(names)
}
# Tags that are a call's only when what they hold is one.
WEAK_TAGS: Final = split_words(
    "invoke function tool action call execute run command api tools use request act כלי פעולה פונקציה"
)
# Closing tags that are taken out directly behind a block, to which they must have belonged.
LEFTOVER_TAGS: Final = split_words("s parameter parameters arguments args param arg antmlparameter")
_TAG_NAME: Final = re.compile(r"[\W_]+")

_ANY_CALL_TAG: Final = re.compile(r"\w{1,30}?((?:tool|function)calls?)")


def normalize_tag_name(written: str) -> str:
    """A tag's name as the tables have it: `seed:tool_call`, `TOOLCALL` and `tool-call` are one."""
    plain = _TAG_NAME.sub("", written.rsplit(":", 1)[-1].rsplit("|", 1)[-1]).casefold()
    calls = _ANY_CALL_TAG.fullmatch(plain)
    return calls[1] if calls is not None else plain


def build_tag_closer(written: str) -> re.Pattern[str]:
    """How the tag that was opened so ends."""
    letters = re.split(r"[\W_]+", written)
    name = r"[\W_]?".join(re.escape(part) for part in letters if part)
    ending = r"|<end_function_call>" if normalize_tag_name(written) == "startfunctioncall" else ""
    return re.compile(rf"<\|?\s*/\s*(?:\|?\w{{1,20}}[|:])?{name}s?\s*\|?>|<{name}\|>{ending}", re.IGNORECASE)
