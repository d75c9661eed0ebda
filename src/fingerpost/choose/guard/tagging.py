"""Tags: whether this one is a call, is spoken of, or is ordinary markup."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard import forms
from fingerpost.choose.guard.forms import MarkerKind, SyntaxMarker
from fingerpost.choose.guard.modes import UntilCloser
from fingerpost.choose.guard.names import is_distinctive, is_tool_like
from fingerpost.choose.guard.opening import examine_open_marker, is_quoted_alone
from fingerpost.choose.guard.reading import parse_calls
from fingerpost.choose.guard.tags import (
    LEFTOVER_TAGS,
    STRONG_TAGS,
    WEAK_TAGS,
    build_tag_closer,
    normalize_tag_name,
)
from fingerpost.choose.guard.values import has_call_shape
from fingerpost.choose.guard.verdicts import WAIT_FOR_MORE, HideUntil, ScanPosition, ScanVerdict, ShowUntil

_MAX_TAG_LENGTH: Final = 400
_MAX_WEAK_LENGTH: Final = 8_000  # characters a tag that may be a call's is held for its end
_TAG_START: Final = re.compile(r"<\s{0,3}(/?)\s{0,3}(\|?(?:\w{1,20}[:|])?(?:[^\W\d][\w\-.]{0,80})?)")
_TAG: Final = re.compile(
    r"<\s{0,3}(/?)\s{0,3}(\|?(?:\w{1,20}[:|])?[^\W\d][\w\-.]{0,80})((?:[\s=:][^<>]{0,300})?)(\|?)>"
)


def examine_tag(position: ScanPosition) -> ScanVerdict:
    start = _TAG_START.match(position.text, position.at)
    name = (start[2] or "") if start is not None else ""
    if start is not None and start.end() == len(position.text) and not position.final:
        return WAIT_FOR_MORE
    if name.endswith("|") and position.text.startswith(">", position.at + 1 + len(name)):
        known = normalize_tag_name(name[:-1]) in STRONG_TAGS and not position.is_about_syntax
        return (
            HideUntil(position.at + len(name) + 2, "gemma", is_stray=True)
            if known
            else ShowUntil(position.at + 1)
        )
    plain = normalize_tag_name(name)
    own = is_distinctive(name) and (
        position.names.is_known(name) or (is_tool_like(name) and position.accepts_unknown_tools)
    )
    if not name or not (
        plain in STRONG_TAGS
        or plain in WEAK_TAGS
        or own
        or (position.follows_hidden and plain in LEFTOVER_TAGS)
    ):
        return ShowUntil(position.at + 1)
    found = _TAG.match(position.text, position.at)
    if found is None:
        return _examine_cut_tag(position, plain)
    if plain in STRONG_TAGS or (plain == "function" and found[3].lstrip().startswith("=")):
        return _examine_strong_tag(position, found, plain)
    if found[1]:
        return (
            HideUntil(found.end(), "xml", is_stray=True)
            if position.follows_hidden
            else ShowUntil(found.end())
        )
    return _examine_weak_tag(position, found, own=own)


def _examine_cut_tag(position: ScanPosition, plain: str) -> ScanVerdict:
    rest, complete = position.look_ahead(position.at + 1, _MAX_TAG_LENGTH)
    if not complete and not re.search(r"[<>]", rest):
        return WAIT_FOR_MORE
    if (
        position.final
        and plain in STRONG_TAGS
        and not re.search(r"[<>]", rest)
        and STRONG_TAGS[plain] != "thought"
    ):
        return HideUntil(len(position.text), STRONG_TAGS[plain])
    return ShowUntil(position.at + 1)


_CALL_AFTER_TAG: Final = re.compile(r"\s*(?:[{\[<`]|\n|call:)")
_ELLIPSIS_TEXT: Final = re.compile(
    r"\s*(?:\{\s*)?(?:\.{2,}|…|json|JSON|payload|name|body)?(?:\s*\})?\s*(?=</)"
)
_MENTION_WORDS: Final = re.compile(
    r"[ \t]{0,3}(?:$|[,.;:!?)\"'”*]|(?:and|or|to|is|are|was|tags?|tokens?|blocks?|markers?|ו|או|הוא|היא)\b)"
)


def _examine_strong_tag(position: ScanPosition, found: re.Match[str], plain: str) -> ScanVerdict:
    syntax = STRONG_TAGS.get(plain, "llama")
    if syntax == "thought":
        return _examine_thought_tag(position, found)
    quoted = is_quoted_alone(position, found.end())
    if quoted is None:
        return WAIT_FOR_MORE
    talk = quoted or (position.is_about_syntax and bool(found[1]))
    if not talk and not found[3].strip():
        mentioned = _is_mentioned(position, found.end(), closing=bool(found[1]), name=found[2])
        if mentioned is None:
            return WAIT_FOR_MORE
        talk = mentioned
    if talk and not (found[1] and position.follows_hidden):
        return ShowUntil(found.end())
    if found[1] or found[3].endswith("/"):
        return HideUntil(found.end(), syntax, is_stray=bool(found[1]))
    closer = build_tag_closer(found[2])
    marker = SyntaxMarker(
        syntax=syntax, kind=MarkerKind.BLOCK, closer=closer, is_result=forms.is_result_name(plain)
    )
    return examine_open_marker(position, found.end(), marker)


def _is_mentioned(position: ScanPosition, end: int, *, closing: bool, name: str) -> bool | None:
    """Whether the tag is spoken of in a sentence, not used; None: what follows decides."""
    behind, complete = position.look_ahead(end, 300)
    if not complete:
        return None
    line = behind.partition("\n")[0]
    prose = bool(re.search(r"\w", position.line[-80:])) and not re.search(r"[>}\])]\s*\Z", position.line)
    if closing:
        opened = re.search(rf"<\|?\s?{re.escape(name)}\b", position.line)
        if opened is None and not line.strip() and re.search(r"[.!?…]\Z", position.line):
            return False  # left over behind a whole sentence: whoever speaks of it goes on
        return opened is not None or (prose and _MENTION_WORDS.match(line) is not None)
    if prose and _ELLIPSIS_TEXT.match(line):
        return True
    if _CALL_AFTER_TAG.match(behind) or not behind.strip():
        return False
    inside = build_tag_closer(name).search(line)
    if inside is not None:
        return not re.search(r"\w", re.sub(r"\b(?:and|or|to|with|ו|עד)\b", "", line[: inside.start()]))
    word = re.match(r"\s*([\w.\-/]+)", line)
    if word is not None and position.names.is_known(word[1]) and is_distinctive(word[1]):
        return False
    return (
        prose
        or re.match(r" (?:is|are|was|tags?|marks?|means|opens|starts|הוא|היא|זה|פותח)\b", line) is not None
    )


def _examine_thought_tag(position: ScanPosition, found: re.Match[str]) -> ScanVerdict:
    """Thinking aloud stands at the start of a line; in a sentence the tag is only spoken of."""
    if found[1]:
        alone = position.is_line_start or re.search(r"[.!?…]\s*\Z", position.line) is not None
        return (
            HideUntil(found.end(), "thought", is_stray=True)
            if alone and not position.is_about_syntax
            else ShowUntil(found.end())
        )
    if position.is_about_syntax or not position.is_line_start:
        return ShowUntil(found.end())
    return HideUntil(found.end(), "thought", UntilCloser(build_tag_closer(found[2])))


def _examine_weak_tag(position: ScanPosition, found: re.Match[str], *, own: bool) -> ScanVerdict:
    """A tag that ordinary markup has too: a call's only if it names a real tool or has parameters."""
    behind, complete = position.look_ahead(found.end(), 60)
    if normalize_tag_name(found[2]) == "invoke" and re.search(r"\bname\s*=", found[3]):
        if re.match(r"\s*<\s*(?:\w{1,20}:)?parameter\b", behind):
            return examine_open_marker(
                position,
                found.end(),
                SyntaxMarker(syntax="claude", kind=MarkerKind.BLOCK, closer=build_tag_closer(found[2])),
            )
        if not complete:
            return WAIT_FOR_MORE
    generic = position.at > 0 and (
        position.text[position.at - 1].isalnum() or position.text[position.at - 1] == "_"
    )
    if (generic and not own) or (position.at < position.tags_checked_to and not own):
        return ShowUntil(found.end())  # `List<Tool>` is a type, and opens nothing that could be closed
    end = min(len(position.text), position.at + _MAX_WEAK_LENGTH)
    closed = position.final or len(position.text) - position.at >= _MAX_WEAK_LENGTH
    closer = build_tag_closer(found[2]).search(position.text, found.end(), end)
    if closer is None and not closed and not found[3].endswith("/"):
        return WAIT_FOR_MORE
    to = closer.end() if closer is not None else found.end()
    block = position.text[position.at : to]
    bare = re.fullmatch(r"\s+name\s*=\s*[\"'][\w.\-]{2,120}[\"']\s*/?", found[3])
    if (
        position.accepts_unknown_tools
        and normalize_tag_name(found[2]) == "invoke"
        and bare
        and found[3].endswith("/")
    ):
        return HideUntil(found.end(), "claude")
    if position.accepts_unknown_tools and _contains_call(
        position, found, block if closer is not None else position.text[position.at : end]
    ):
        return HideUntil(to if closer is not None else end, "xml")
    named = (
        own and closer is not None and ("<" in position.text[found.end() : closer.start()] or "{" in block)
    )
    if named or any(map(position.names.is_known, _find_sure_names(position, found, block))):
        return HideUntil(to, "xml")
    return ShowUntil(found.end(), tags_checked_to=end if closer is None and not found[3].endswith("/") else 0)


_CHILD_TAG: Final = re.compile(
    r"<\s*(?:\w{1,20}:)?(?:arguments|args|parameters?|params|inputs?|tool_?input|arg)\b", re.IGNORECASE
)
_NAME_CHILD_TAG: Final = re.compile(
    r"<\s*(?:tool_?|function_?)?(?:name|tool|function)\s*(?:>|=)", re.IGNORECASE
)


def _contains_call(position: ScanPosition, found: re.Match[str], block: str) -> bool:
    """Whether a weak tag holds a call of a tool nobody knows: a name and arguments, and nothing else."""
    inner = re.sub(r"<\s*/[^<>]{1,100}>\s*\Z", "", block[found.end() - position.at :]).strip()
    if inner[:1] in ("{", "["):
        attribute = re.search(r"\b(?:name|tool|function)\s*=", found[3])
        return has_call_shape(inner, position.request) or (attribute is not None and inner[-1:] in ("}", "]"))
    if inner.startswith("<"):
        named = _NAME_CHILD_TAG.search(inner) or re.search(r"\bname\s*=", inner[:200])
        return named is not None and _CHILD_TAG.search(inner) is not None
    return position.is_line_start and is_tool_like(inner)


def _find_sure_names(position: ScanPosition, found: re.Match[str], block: str) -> tuple[str, ...]:
    """The names in a weak tag that are a call's beyond doubt: in an attribute, or all a tag of it says."""
    attribute = re.search(r"\b(?:name|tool|function)\s*=\s*[\"']?([\w.\-/:]{1,120})", found[3])
    if attribute is not None:
        return (attribute[1],)
    inner = block[found.end() - position.at :]
    word = re.match(r"\s*(?:<\s*(?:tool_?)?name\s*>\s*)?([\w.\-/:]{1,120})\s*(?:<|\(|\[|\{)", inner)
    if word is not None and is_distinctive(word[1]):
        return (word[1],)
    if inner.lstrip()[:1] in ("{", "["):
        return tuple(call.name for call in parse_calls(inner, position.names))
    return ()
