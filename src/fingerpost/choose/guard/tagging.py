"""Tags: whether this one is a call, is spoken of, or is ordinary markup."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard import forms
from fingerpost.choose.guard.forms import Kind, Marker
from fingerpost.choose.guard.modes import Until
from fingerpost.choose.guard.names import distinctive, is_invented
from fingerpost.choose.guard.opening import opened, quoted_alone
from fingerpost.choose.guard.reading import read_calls
from fingerpost.choose.guard.tags import LEFT_OVER, STRONG, WEAK, tag_closer, tag_name
from fingerpost.choose.guard.values import has_call_shape
from fingerpost.choose.guard.verdicts import WAIT, Hide, Place, Show, Verdict

_LONGEST_TAG: Final = 400
_LONGEST_WEAK: Final = 8_000  # characters a tag that may be a call's is held for its end
_TAG_START: Final = re.compile(r"<\s{0,3}(/?)\s{0,3}(\|?(?:\w{1,20}[:|])?(?:[^\W\d][\w\-.]{0,80})?)")
_TAG: Final = re.compile(
    r"<\s{0,3}(/?)\s{0,3}(\|?(?:\w{1,20}[:|])?[^\W\d][\w\-.]{0,80})((?:[\s=:][^<>]{0,300})?)(\|?)>"
)


def examine_tag(place: Place) -> Verdict:
    start = _TAG_START.match(place.text, place.at)
    name = (start[2] or "") if start is not None else ""
    if start is not None and start.end() == len(place.text) and not place.final:
        return WAIT
    if name.endswith("|") and place.text.startswith(">", place.at + 1 + len(name)):
        known = tag_name(name[:-1]) in STRONG and not place.about
        return Hide(place.at + len(name) + 2, "gemma", alone=True) if known else Show(place.at + 1)
    plain = tag_name(name)
    own = distinctive(name) and (place.names.knows(name) or (is_invented(name) and place.takes_unknown))
    if not name or not (plain in STRONG or plain in WEAK or own or (place.behind and plain in LEFT_OVER)):
        return Show(place.at + 1)
    found = _TAG.match(place.text, place.at)
    if found is None:
        return _cut_tag(place, plain)
    if plain in STRONG or (plain == "function" and found[3].lstrip().startswith("=")):
        return _strong(place, found, plain)
    if found[1]:
        return Hide(found.end(), "xml", alone=True) if place.behind else Show(found.end())
    return _weak(place, found, own=own)


def _cut_tag(place: Place, plain: str) -> Verdict:
    rest, complete = place.ahead(place.at + 1, _LONGEST_TAG)
    if not complete and not re.search(r"[<>]", rest):
        return WAIT
    if place.final and plain in STRONG and not re.search(r"[<>]", rest) and STRONG[plain] != "thought":
        return Hide(len(place.text), STRONG[plain])
    return Show(place.at + 1)


_CALL_BEHIND: Final = re.compile(r"\s*(?:[{\[<`]|\n|call:)")
_DOTS: Final = re.compile(r"\s*(?:\{\s*)?(?:\.{2,}|…|json|JSON|payload|name|body)?(?:\s*\})?\s*(?=</)")
_TALK: Final = re.compile(
    r"[ \t]{0,3}(?:$|[,.;:!?)\"'”*]|(?:and|or|to|is|are|was|tags?|tokens?|blocks?|markers?|ו|או|הוא|היא)\b)"
)


def _strong(place: Place, found: re.Match[str], plain: str) -> Verdict:
    syntax = STRONG.get(plain, "llama")
    if syntax == "thought":
        return _thought(place, found)
    quoted = quoted_alone(place, found.end())
    if quoted is None:
        return WAIT
    talk = quoted or (place.about and bool(found[1]))
    if not talk and not found[3].strip():
        mentioned = _mentioned(place, found.end(), closing=bool(found[1]), name=found[2])
        if mentioned is None:
            return WAIT
        talk = mentioned
    if talk and not (found[1] and place.behind):
        return Show(found.end())
    if found[1] or found[3].endswith("/"):
        return Hide(found.end(), syntax, alone=bool(found[1]))
    closer = tag_closer(found[2])
    marker = Marker(syntax=syntax, kind=Kind.BLOCK, closer=closer, result=forms.is_result(plain))
    return opened(place, found.end(), marker)


def _mentioned(place: Place, end: int, *, closing: bool, name: str) -> bool | None:
    """Whether the tag is spoken of in a sentence, not used; None: what follows decides."""
    behind, complete = place.ahead(end, 300)
    if not complete:
        return None
    line = behind.partition("\n")[0]
    prose = bool(re.search(r"\w", place.line[-80:])) and not re.search(r"[>}\])]\s*\Z", place.line)
    if closing:
        opened = re.search(rf"<\|?\s?{re.escape(name)}\b", place.line)
        if opened is None and not line.strip() and re.search(r"[.!?…]\Z", place.line):
            return False  # left over behind a whole sentence: whoever speaks of it goes on
        return opened is not None or (prose and _TALK.match(line) is not None)
    if prose and _DOTS.match(line):
        return True
    if _CALL_BEHIND.match(behind) or not behind.strip():
        return False
    inside = tag_closer(name).search(line)
    if inside is not None:
        return not re.search(r"\w", re.sub(r"\b(?:and|or|to|with|ו|עד)\b", "", line[: inside.start()]))
    word = re.match(r"\s*([\w.\-/]+)", line)
    if word is not None and place.names.knows(word[1]) and distinctive(word[1]):
        return False
    return (
        prose
        or re.match(r" (?:is|are|was|tags?|marks?|means|opens|starts|הוא|היא|זה|פותח)\b", line) is not None
    )


def _thought(place: Place, found: re.Match[str]) -> Verdict:
    """Thinking aloud stands at the start of a line; in a sentence the tag is only spoken of."""
    if found[1]:
        alone = place.begins_line or re.search(r"[.!?…]\s*\Z", place.line) is not None
        return Hide(found.end(), "thought", alone=True) if alone and not place.about else Show(found.end())
    if place.about or not place.begins_line:
        return Show(found.end())
    return Hide(found.end(), "thought", Until(tag_closer(found[2])))


def _weak(place: Place, found: re.Match[str], *, own: bool) -> Verdict:
    """A tag that ordinary markup has too: a call's only if it names a real tool or has parameters."""
    behind, complete = place.ahead(found.end(), 60)
    if tag_name(found[2]) == "invoke" and re.search(r"\bname\s*=", found[3]):
        if re.match(r"\s*<\s*(?:\w{1,20}:)?parameter\b", behind):
            return opened(
                place, found.end(), Marker(syntax="claude", kind=Kind.BLOCK, closer=tag_closer(found[2]))
            )
        if not complete:
            return WAIT
    generic = place.at > 0 and (place.text[place.at - 1].isalnum() or place.text[place.at - 1] == "_")
    if (generic and not own) or (place.at < place.blind_tags and not own):
        return Show(found.end())  # `List<Tool>` is a type, and opens nothing that could be closed
    end = min(len(place.text), place.at + _LONGEST_WEAK)
    closed = place.final or len(place.text) - place.at >= _LONGEST_WEAK
    closer = tag_closer(found[2]).search(place.text, found.end(), end)
    if closer is None and not closed and not found[3].endswith("/"):
        return WAIT
    to = closer.end() if closer is not None else found.end()
    block = place.text[place.at : to]
    bare = re.fullmatch(r"\s+name\s*=\s*[\"'][\w.\-]{2,120}[\"']\s*/?", found[3])
    if place.takes_unknown and tag_name(found[2]) == "invoke" and bare and found[3].endswith("/"):
        return Hide(found.end(), "claude")
    if place.takes_unknown and _holds_call(
        place, found, block if closer is not None else place.text[place.at : end]
    ):
        return Hide(to if closer is not None else end, "xml")
    named = own and closer is not None and ("<" in place.text[found.end() : closer.start()] or "{" in block)
    if named or any(map(place.names.knows, _sure_names(place, found, block))):
        return Hide(to, "xml")
    return Show(found.end(), blind_tags=end if closer is None and not found[3].endswith("/") else 0)


_CHILD: Final = re.compile(
    r"<\s*(?:\w{1,20}:)?(?:arguments|args|parameters?|params|inputs?|tool_?input|arg)\b", re.IGNORECASE
)
_NAME_CHILD: Final = re.compile(r"<\s*(?:tool_?|function_?)?(?:name|tool|function)\s*(?:>|=)", re.IGNORECASE)


def _holds_call(place: Place, found: re.Match[str], block: str) -> bool:
    """Whether a weak tag holds a call of a tool nobody knows: a name and arguments, and nothing else."""
    inner = re.sub(r"<\s*/[^<>]{1,100}>\s*\Z", "", block[found.end() - place.at :]).strip()
    if inner[:1] in ("{", "["):
        attribute = re.search(r"\b(?:name|tool|function)\s*=", found[3])
        return has_call_shape(inner, place.request) or (attribute is not None and inner[-1:] in ("}", "]"))
    if inner.startswith("<"):
        named = _NAME_CHILD.search(inner) or re.search(r"\bname\s*=", inner[:200])
        return named is not None and _CHILD.search(inner) is not None
    return place.begins_line and is_invented(inner)


def _sure_names(place: Place, found: re.Match[str], block: str) -> tuple[str, ...]:
    """The names in a weak tag that are a call's beyond doubt: in an attribute, or all a tag of it says."""
    attribute = re.search(r"\b(?:name|tool|function)\s*=\s*[\"']?([\w.\-/:]{1,120})", found[3])
    if attribute is not None:
        return (attribute[1],)
    inner = block[found.end() - place.at :]
    word = re.match(r"\s*(?:<\s*(?:tool_?)?name\s*>\s*)?([\w.\-/:]{1,120})\s*(?:<|\(|\[|\{)", inner)
    if word is not None and distinctive(word[1]):
        return (word[1],)
    if inner.lstrip()[:1] in ("{", "["):
        return tuple(call.written for call in read_calls(inner, place.names))
    return ()
