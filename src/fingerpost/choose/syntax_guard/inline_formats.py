"""Detect tool syntax inside a line: JSON values, tags, tokens, square brackets and marker words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from fingerpost.choose.syntax_guard.call_parser import (
    CALL_KEYS,
    MoreTextNeeded,
    find_calls,
    fold_key,
    parse_calls,
    parse_json_value,
    parse_program_calls,
)
from fingerpost.choose.syntax_guard.formats import (
    STRONG_TAGS,
    TURN_CLOSER,
    ChannelMessage,
    ConversationTurn,
    HiddenMode,
    HideUntil,
    MarkedCall,
    MarkerKind,
    ScanPosition,
    ScanVerdict,
    ShowUntil,
    SyntaxMarker,
    UntilCloser,
    build_tag_closer,
    is_result_name,
    is_role_expected,
    is_sure_token,
    is_unfinished_token,
    match_or_wait,
    normalize_tag_name,
)
from fingerpost.choose.syntax_guard.vocabulary import (
    LISTS,
    WORDS,
    WrittenToolNames,
    is_distinctive,
    is_tool_like,
)
from fingerpost.records import JsonObject
from fingerpost.regex import prepare_re

_MAX_JSON_HEAD_LENGTH: Final = 400
_NO_NAMES: Final = WrittenToolNames(())
_PLAIN_NAME: Final = prepare_re(r"[^\W\d][\w.\-/:]{1,120}")
_TRUNCATED_CALL: Final = prepare_re(
    r"\s*+\[?\s*+\{\s*+[\"'](?:name|tool|tool_name|function|recipient_name)[\"']\s*:\s*[\"'][^\W\d][\w.\-/:]{1,120}[\"']"
    r"\s*,\s*[\"'](?:arguments|parameters|args|params|input|tool_input)[\"']\s*:\s*(?:[\"']?\{|\Z)",
    re.IGNORECASE,
)
_MAX_SEARCHED_LENGTH: Final = 4_000  # characters of an unclosed value that are searched for a name
_JSON_KEY: Final = prepare_re(r"[\s\[]{0,200}\{\s{0,200}([\"']?)([^\W\d][\w \-./]{0,60})\1\s{0,20}:")
_JSON_KEY_START: Final = prepare_re(
    r"[\s\[]{0,200}(?:\{\s{0,200}(?:[\"']?(?:[^\W\d][\w \-./]{0,60})?[\"']?\s{0,20})?)?\Z"
)
_JSON_NAME_VALUE: Final = prepare_re(r"\s{0,40}([\"'])([^\"'\\\n]{0,160})\1")
_JSON_NAME_VALUE_START: Final = prepare_re(r"\s{0,40}(?:[\"'][^\"'\\\n]{0,160})?\Z")
_NAME_FIELD: Final = prepare_re(
    r"[\"']?(?:name|tool|tool_name|function|function_name|action|recipient_name|toolname|שם"
    r"|כלי)[\"']?\s{0,10}:\s{0,10}"
    r"[\"']([^\"'\n]{1,160})(?:[\"']|\Z)",
    re.IGNORECASE,
)


_NEVER_MATCHES: Final = prepare_re(r"(?!)")


def examine_brace(position: ScanPosition) -> ScanVerdict:
    """Examine the `{` at this position."""
    is_template = position.text.startswith("{{", position.at)
    return _examine_template(position) if is_template else examine_json(position)


def examine_json(position: ScanPosition) -> ScanVerdict:
    """Examine an object or a list of objects that may be a call."""
    at, names = position.at, position.names
    head, complete = position.look_ahead(at, _MAX_JSON_HEAD_LENGTH)
    if not may_be_call_head(head, names, allow_unknown=True, complete=complete):
        return ShowUntil(at + 1)
    unknown = position.accepts_unknown_tools
    if not unknown and not may_be_call_head(head, names, allow_unknown=False, complete=complete):
        return ShowUntil(at + 1)
    end = position.find_end(at)
    value = position.text[at : position.limit if end is None else end]
    is_call = is_real_tool_call(value, names) and not (position.is_about_syntax and position.line)
    if not is_call and unknown and has_call_shape(value, position.request):
        is_call = position.ends_line(at + len(value))
    if is_call:
        return HideUntil(at + len(value), "json", UntilCloser(_NEVER_MATCHES) if end is None else None)
    return ShowUntil(at + 1, values_checked_to=at + _MAX_SEARCHED_LENGTH if end is None else end)


def may_be_call_head(head: str, names: WrittenToolNames, *, allow_unknown: bool, complete: bool) -> bool:
    """Return whether JSON with this beginning can be a call. Raises `MoreTextNeeded` if this is open.

    With `allow_unknown`, calls of unknown tools count too.
    """
    key = match_or_wait(_JSON_KEY, _JSON_KEY_START, head, complete=complete)
    if key is None:
        return _JSON_KEY_START.match(head) is not None
    plain = fold_key(key[2])
    if plain not in CALL_KEYS:
        return is_distinctive(key[2]) and (names.is_known(key[2]) or (allow_unknown and is_tool_like(key[2])))
    if plain not in WORDS["name keys"]:
        return True
    behind = head[key.end() :]
    value = match_or_wait(_JSON_NAME_VALUE, _JSON_NAME_VALUE_START, behind, complete=complete)
    if value is not None:
        return names.is_known(value[2]) or (allow_unknown and _PLAIN_NAME.fullmatch(value[2]) is not None)
    return behind.lstrip().startswith("{") or _JSON_NAME_VALUE_START.match(behind) is not None


def has_call_shape(text: str, request: str) -> bool:
    """Return whether this is only a name and arguments, with any name, complete or cut off."""
    value = parse_json_value(text)
    if value is not None:
        calls = find_calls(value, _NO_NAMES)
        return bool(calls) and all(
            call.is_explicit or (call.is_doubtful and _repeats_request(call.arguments or {}, request))
            for call in calls
        )
    return _TRUNCATED_CALL.match(text) is not None


def _repeats_request(arguments: JsonObject, request: str) -> bool:
    """Return whether every value comes from the request, as in a call. A data record has new values."""
    asked = request.casefold()
    values = [re.findall(r"\w{2,}", str(value).casefold()) for value in arguments.values()]
    return bool(values) and all(any(word in asked for word in words) for words in values)


def is_real_tool_call(text: str, names: WrittenToolNames) -> bool:
    """Return whether this is a call of a known tool, complete or cut off."""
    value = parse_json_value(text)
    if value is not None:
        return any(names.is_known(call.name) for call in find_calls(value, names))
    written = _NAME_FIELD.search(text[:_MAX_SEARCHED_LENGTH])
    if written is None:
        return False
    whole = text.rstrip().endswith(("}", "]"))
    found = re.findall(r"[\"']?\b(\w{1,40})[\"']?\s{0,10}:", text[:_MAX_JSON_HEAD_LENGTH])
    if names.is_known(written[1]):
        return not (CALL_KEYS - {"name"} if whole else CALL_KEYS).isdisjoint(map(fold_key, found))
    return not whole and len(written[1]) > 3 and written.end() == len(text) and names.is_prefix(written[1])


_TEMPLATE: Final = prepare_re(
    r"\{\{\s{0,9}(?:(?:tool|function|call|tool_call)\s{0,3}[:|]?\s{0,3})?([\w.\-/]{2,120})\s{0,9}([(:|}{]|\Z)"
)
_TEMPLATE_START: Final = prepare_re(r"\{\{[\s\w.\-/:|]{0,160}\Z")


def _examine_template(position: ScanPosition) -> ScanVerdict:
    """Examine `{{get_weather(city="Haifa")}}` and `{{tool: get_weather}}`."""
    rest, complete = position.look_ahead(position.at, _MAX_JSON_HEAD_LENGTH)
    found = match_or_wait(_TEMPLATE, _TEMPLATE_START, rest, complete=complete)
    closing = rest.find("}}")
    if found is None:
        return ShowUntil(position.at + 1)
    if closing < 0 and not complete:
        raise MoreTextNeeded
    may_call = closing > 0 and found[2] != "}" and not position.is_about_syntax
    if may_call and is_distinctive(found[1]) and position.may_be_tool(found[1]):
        return HideUntil(position.at + closing + 2, "marker")
    return ShowUntil(position.at + 1)


_MAX_UNSEEN_LENGTH: Final = 4_000
_QUOTE_MARKS: Final = frozenset("\"'“”‘’«»״׳")


def _create_mode(marker: SyntaxMarker) -> HiddenMode | None:
    if marker.kind is MarkerKind.BLOCK:
        return MarkedCall(marker.closer)
    if marker.kind is MarkerKind.TURN:
        return UntilCloser(marker.closer) if marker.closer is not None else ConversationTurn()
    if marker.kind is MarkerKind.SPAN and marker.closer is not None:
        return UntilCloser(marker.closer)
    return ChannelMessage() if marker.kind is MarkerKind.CHANNEL else None


def examine_open_marker(position: ScanPosition, end: int, marker: SyntaxMarker) -> ScanVerdict:
    """Hide a certain marker. If the request is about tool syntax, hide it only if it calls a known tool."""
    if position.is_about_syntax:
        if marker.kind is not MarkerKind.BLOCK:
            return ShowUntil(end)
        mode = MarkedCall(marker.closer)
        text = position.text[: position.limit]
        at, done = end, False
        while not done:
            to, done = mode.step(text, at, final=position.is_closed)
            if to == at and not done:
                raise MoreTextNeeded
            at = to
        calls = parse_calls(text[position.at : at], position.names)
        if any(position.names.is_known(call.name) for call in calls):
            return HideUntil(at, marker.syntax)
        # Do not show an unclosed block as a whole: a call may follow inside it.
        return ShowUntil(at if at < position.limit or position.final else min(at, end + _MAX_UNSEEN_LENGTH))
    without_calls = marker.is_result or marker.kind is MarkerKind.TURN
    return HideUntil(
        end,
        marker.syntax,
        _create_mode(marker),
        is_stray=marker.kind is MarkerKind.ALONE,
        has_no_calls=without_calls,
    )


def is_quoted_alone(position: ScanPosition, end: int) -> bool:
    """Return whether the marker alone is in quotation marks. Raises `MoreTextNeeded` if this is open."""
    return position.before[-1:] in _QUOTE_MARKS and position.read(end, 1) in _QUOTE_MARKS


_MAX_TAG_LENGTH: Final = 400
_MAX_WEAK_LENGTH: Final = 8_000  # characters held back while a possible call tag is not closed
_TAG_START: Final = prepare_re(r"<\s{0,3}(/?)\s{0,3}(\|?(?:\w{1,20}[:|])?(?:[^\W\d][\w\-.]{0,80})?)")
_TAG: Final = prepare_re(
    r"<\s{0,3}(/?)\s{0,3}(\|?(?:\w{1,20}[:|])?[^\W\d][\w\-.]{0,80})((?:[\s=:][^<>]{0,300})?)(\|?)>"
)


def examine_tag(position: ScanPosition) -> ScanVerdict:
    start = _TAG_START.match(position.text, position.at)
    name = (start[2] or "") if start is not None else ""
    if start is not None and start.end() == len(position.text) and not position.final:
        raise MoreTextNeeded
    if name.endswith("|") and position.text.startswith(">", position.at + 1 + len(name)):
        known = normalize_tag_name(name[:-1]) in STRONG_TAGS and not position.is_about_syntax
        end = position.at + len(name) + 2
        return HideUntil(end, "gemma", is_stray=True) if known else ShowUntil(position.at + 1)
    plain = normalize_tag_name(name)
    own = is_distinctive(name) and position.may_be_tool(name)
    is_leftover = position.follows_hidden and plain in WORDS["leftover tags"]
    if not name or not (plain in STRONG_TAGS or plain in WORDS["weak tags"] or own or is_leftover):
        return ShowUntil(position.at + 1)
    found = _TAG.match(position.text, position.at)
    if found is None:
        rest, complete = position.look_ahead(position.at + 1, _MAX_TAG_LENGTH)
        is_open = not re.search(r"[<>]", rest)
        if is_open and not complete:
            raise MoreTextNeeded
        if is_open and position.final and STRONG_TAGS.get(plain, "thought") != "thought":
            return HideUntil(len(position.text), STRONG_TAGS[plain])
        return ShowUntil(position.at + 1)
    if plain in STRONG_TAGS or (plain == "function" and found[3].lstrip().startswith("=")):
        return _examine_strong_tag(position, found, plain)
    if not found[1]:
        return _examine_weak_tag(position, found, own=own)
    return HideUntil(found.end(), "xml", is_stray=True) if position.follows_hidden else ShowUntil(found.end())


_CALL_AFTER_TAG: Final = prepare_re(r"\s*(?:[{\[<`]|\n|call:)")
_ELLIPSIS_TEXT: Final = prepare_re(
    r"\s*+(?:\{\s*+)?(?:\.{2,}|…|json|JSON|payload|name|body)?(?:\s*+\})?\s*+(?=</)"
)
_MENTION_WORDS: Final = prepare_re(
    r"[ \t]{0,3}(?:$|[,.;:!?)\"'”*]|(?:and|or|to|is|are|was|tags?|tokens?|blocks?|markers?|ו|או|הוא|היא)\b)"
)


def _examine_strong_tag(position: ScanPosition, found: re.Match[str], plain: str) -> ScanVerdict:
    syntax = STRONG_TAGS.get(plain, "llama")
    if syntax == "thought":
        # A reasoning tag counts at the start of a line; inside a sentence it is only a mention.
        ends_sentence = bool(found[1]) and re.search(r"[.!?…]\s*\Z", position.line) is not None
        if position.is_about_syntax or not (position.is_line_start or ends_sentence):
            return ShowUntil(found.end())
        if found[1]:
            return HideUntil(found.end(), "thought", is_stray=True)
        return HideUntil(found.end(), "thought", UntilCloser(build_tag_closer(found[2])))
    is_mention = is_quoted_alone(position, found.end()) or (position.is_about_syntax and bool(found[1]))
    if not is_mention and not found[3].strip():
        is_mention = _is_mentioned(position, found.end(), closing=bool(found[1]), name=found[2])
    if is_mention and not (found[1] and position.follows_hidden):
        return ShowUntil(found.end())
    if found[1] or found[3].endswith("/"):
        return HideUntil(found.end(), syntax, is_stray=bool(found[1]))
    return examine_open_marker(position, found.end(), _build_tag_marker(found[2], syntax, plain))


def _build_tag_marker(name: str, syntax: str, plain: str) -> SyntaxMarker:
    closer = build_tag_closer(name)
    return SyntaxMarker(syntax=syntax, kind=MarkerKind.BLOCK, closer=closer, is_result=is_result_name(plain))


def _is_mentioned(position: ScanPosition, end: int, *, closing: bool, name: str) -> bool:
    """Return whether a sentence only mentions the tag. Raises `MoreTextNeeded` if this is open."""
    behind = position.read(end, 300)
    line = behind.partition("\n")[0]
    prose = bool(re.search(r"\w", position.line[-80:])) and not re.search(r"[>}\])]\s*\Z", position.line)
    if closing:
        opened = re.search(rf"<\|?\s?{re.escape(name)}\b", position.line)
        if opened is None and not line.strip() and re.search(r"[.!?…]\Z", position.line):
            return False  # a leftover after a complete sentence, not a mention
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
    verb = r" (?:is|are|was|tags?|marks?|means|opens|starts|הוא|היא|זה|פותח)\b"
    return prose or re.match(verb, line) is not None


_PARAMETER_CHILD: Final = prepare_re(r"\s*<\s*(?:\w{1,20}:)?parameter\b")


def _examine_weak_tag(position: ScanPosition, found: re.Match[str], *, own: bool) -> ScanVerdict:
    """Examine a tag of ordinary markup. It is a call only if it names a known tool or has parameters."""
    is_invoke, unknown = normalize_tag_name(found[2]) == "invoke", position.accepts_unknown_tools
    if is_invoke and re.search(r"\bname\s*=", found[3]):
        behind, complete = position.look_ahead(found.end(), 60)
        if _PARAMETER_CHILD.match(behind):
            return examine_open_marker(position, found.end(), _build_tag_marker(found[2], "claude", ""))
        if not complete:
            raise MoreTextNeeded
    is_generic = re.match(r"\w", position.before[-1:]) is not None
    if not own and (is_generic or position.at < position.tags_checked_to):
        return ShowUntil(found.end())  # `List<Tool>` is a type and has no closing tag
    end = min(len(position.text), position.at + _MAX_WEAK_LENGTH)
    is_empty = found[3].endswith("/")
    closer = build_tag_closer(found[2]).search(position.text, found.end(), end)
    if closer is None and not is_empty:
        position.read(position.at, _MAX_WEAK_LENGTH)
    to = closer.end() if closer is not None else found.end()
    block = position.text[position.at : to]
    whole = block if closer is not None else position.text[position.at : end]
    if unknown and _contains_call(position, found, whole):
        return HideUntil(position.at + len(whole), "xml")
    has_content = closer is not None and ("<" in position.text[found.end() : closer.start()] or "{" in block)
    if (own and has_content) or any(map(position.names.is_known, _find_sure_names(position, found, block))):
        return HideUntil(to, "xml")
    return ShowUntil(found.end(), tags_checked_to=end if closer is None and not is_empty else 0)


_CHILD_TAG: Final = prepare_re(
    r"<\s*(?:\w{1,20}:)?(?:arguments|args|parameters?|params|inputs?|tool_?input|arg)\b", re.IGNORECASE
)
_NAME_CHILD_TAG: Final = prepare_re(
    r"<\s*(?:tool_?|function_?)?(?:name|tool|function)\s*(?:>|=)", re.IGNORECASE
)


def _contains_call(position: ScanPosition, found: re.Match[str], block: str) -> bool:
    """Return whether a weak tag contains only a name and arguments, which is a call of an unknown tool."""
    inner = re.sub(r"<\s*/[^<>]{1,100}>\s*\Z", "", block[found.end() - position.at :]).strip()
    if inner[:1] in ("{", "["):
        attribute = re.search(r"\b(?:name|tool|function)\s*=", found[3])
        return has_call_shape(inner, position.request) or (attribute is not None and inner[-1:] in ("}", "]"))
    if inner.startswith("<"):
        named = _NAME_CHILD_TAG.search(inner) or re.search(r"\bname\s*=", inner[:200])
        return named is not None and _CHILD_TAG.search(inner) is not None
    return position.is_line_start and is_tool_like(inner)


def _find_sure_names(position: ScanPosition, found: re.Match[str], block: str) -> tuple[str, ...]:
    """Return the names in a weak tag that certainly belong to a call: in an attribute or a name tag."""
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


_PIPE_TOKEN: Final = prepare_re(r"<\|([^|<>\n]{1,80})\|>|<\|(/?DSML\|[^<>\n]{1,200}|/?[^\W\d]\w{2,40})>")
_PIPE_TOKEN_START: Final = prepare_re(r"<\|(?:[^|<>\n]{0,80}\|?|/?DSML\|[^<>\n]{0,200})\Z", re.IGNORECASE)
# An unknown token: two words or a long one. Physics notation and F# have short text between such signs.
_UNKNOWN_MARKER: Final = prepare_re(r"(?=[^|<>\n]*[\w][ _][\w]|[^|<>\n]{10})[\w/][^|<>\n]*[\w.!?)]\Z")


def examine_marker(position: ScanPosition) -> ScanVerdict:
    """Examine the `<` at this position."""
    second = position.read(position.at + 1, 1)
    if second == "<":
        return _examine_double_brackets(position)
    return _examine_pipe_token(position) if second == "|" else examine_tag(position)


_DOUBLE_BRACKETS: Final = prepare_re(r"<<\s?(/?)\s?([^\W\d][\w \-]{1,40})>>")
_DOUBLE_BRACKETS_START: Final = prepare_re(r"<<\s?/?\s?[\w \-]{0,41}>?\Z")


def _examine_double_brackets(position: ScanPosition) -> ScanVerdict:
    """Examine `<<tool_call>>`."""
    rest, complete = position.look_ahead(position.at, 50)
    found = match_or_wait(_DOUBLE_BRACKETS, _DOUBLE_BRACKETS_START, rest, complete=complete)
    if found is None:
        return ShowUntil(position.at + 1)
    end = position.at + found.end()
    if normalize_tag_name(found[2]) not in STRONG_TAGS or position.is_about_syntax:
        return ShowUntil(end)
    closer = re.compile(rf"<<\s?/\s?{re.escape(found[2])}\s?>>", re.IGNORECASE)
    return HideUntil(end, "marker", None if found[1] else MarkedCall(closer), is_stray=bool(found[1]))


def _examine_pipe_token(position: ScanPosition) -> ScanVerdict:
    found = _PIPE_TOKEN.match(position.text, position.at)
    if found is None:
        rest, complete = position.look_ahead(position.at, 300)
        match_or_wait(_PIPE_TOKEN, _PIPE_TOKEN_START, rest, complete=complete)
        if position.final and _PIPE_TOKEN_START.match(rest) and is_unfinished_token(rest[2:]):
            return HideUntil(len(position.text), SyntaxMarker.from_token(rest[2:].rstrip("|")).syntax)
        return ShowUntil(position.at + 2)
    inner = found[1] or found[2]
    if not (is_sure_token(inner) or _UNKNOWN_MARKER.match(inner)):
        return ShowUntil(position.at + 2)
    if is_quoted_alone(position, found.end()):
        return ShowUntil(found.end())
    marker = SyntaxMarker.from_token(inner)
    if marker.kind is MarkerKind.TURN:
        # `<|user|>` contains the role; after `<|im_start|>` the role follows and decides the end.
        marker = replace(marker, closer=None if is_role_expected(inner) else TURN_CLOSER)
    return examine_open_marker(position, found.end(), marker)


_MAX_BRACKETED_LENGTH: Final = 2_000  # characters searched for the end of a bracketed block
_BRACKET_MARKER: Final = prepare_re(
    r"\[\[?\s*(?P<end>/|END[ _]|end[ _](?:of[ _])?|סוף )?(?:start[ _](?:of[ _])?|begin[ _]|תחילת )?"
    r"(?P<word>(?:available[ _]|memory[ _])?(?:tools?|functions?)[ _-]?(?:calls?|requests?|use|uses"
    r"|results?|invocations?|code)"
    r"|AVAILABLE_TOOLS|TOOLS?|ARGS|CALL_ID|TOOL_CONTENT|THINK|קריאה לכלי|קריאת כלי|הפעלת כלי"
    r"|שימוש בכלי)\s*\]\]?",
    re.IGNORECASE,
)
# Only next to another marker.
_MARKER_PARTS: Final = frozenset({"tool", "tools", "args", "call_id", "tool_content"})
_BRACKET_MARKER_CLOSER: Final = prepare_re(r"\[\[?\s*(?:/|END[ _]|סוף )[^\[\]\n]{1,40}\]\]?", re.IGNORECASE)
_BRACKET_LEADS: Final = ("", "/", "end_", "end ", "start_", "start ", "begin_", "begin ", "סוף ", "תחילת ")
_BRACKET_MARKER_WORDS: Final = tuple(
    lead + word for lead in _BRACKET_LEADS for line in LISTS["bracket words"] for word in line.split(", ")
)
_BRACKETED_PROGRAM: Final = prepare_re(r"\[\s{0,40}([^\W\d][\w.\-]{0,120})\s?(\()")
_BRACKETED_CALL: Final = prepare_re(
    r"\[\s{0,3}(?:calling|call|using|use|invoking|invoke|executing|execute|running|run|tool|function"
    r"|קורא ל|מפעיל|מריץ|כלי)\b"
    r"[\s:]{0,3}(?:the\s|tool\b|function\b|call\b|:|\s|כלי\b|את\s"
    r"|הכלי\b){0,3}[\s:=`\"']{0,4}([\w.\-/]{2,120})[^\[\]\n]{0,20}?[({:=\]]",
    re.IGNORECASE,
)
_BRACKETED_CALL_WORDS: Final = tuple(WORDS["bracket call words"])


def examine_square_bracket(position: ScanPosition) -> ScanVerdict:
    """Examine the `[` at this position."""
    rest, complete = position.look_ahead(position.at, 200)
    inner, run = rest.lstrip("[ \t\n"), len(rest) - len(rest.lstrip("["))
    if run > 2:
        return ShowUntil(position.at + run - 2)
    if not inner and len(rest) < 100 and not complete:
        raise MoreTextNeeded
    if inner.startswith("{"):
        return examine_json(position)
    if inner[:1] in ('"', "'"):
        return _examine_pair(position, rest, complete=complete)
    if not inner or not _may_be_bracket_syntax(rest, inner, position):
        return ShowUntil(position.at + 1)
    return _examine_bracketed_words(position, position.read(position.at, 200))


_NAME_ARGUMENTS_PAIR: Final = prepare_re(r"\[\s{0,40}([\"'])([\w.\-/]{2,120})\1\s{0,9},\s{0,40}\{")
_NAME_ARGUMENTS_PAIR_START: Final = prepare_re(
    r"\[\s{0,40}[\"'][\w.\-/]{0,120}(?:[\"']\s{0,9}(?:,\s{0,40})?)?\Z"
)


def _examine_pair(position: ScanPosition, rest: str, *, complete: bool) -> ScanVerdict:
    """Examine `["get_weather", {"city": "Haifa"}]`."""
    found = match_or_wait(_NAME_ARGUMENTS_PAIR, _NAME_ARGUMENTS_PAIR_START, rest, complete=complete)
    is_tool = found is not None and is_distinctive(found[2]) and position.names.is_known(found[2])
    if not is_tool or position.is_about_syntax:
        return ShowUntil(position.at + 1)
    end = position.find_end(position.at)
    return HideUntil(position.limit if end is None else end, "json")


def _may_be_bracket_syntax(rest: str, inner: str, position: ScanPosition) -> bool:
    """Return whether text in square brackets with this beginning can be a marker or a call."""
    names, first = position.names, not position.before.strip() and position.accepts_unknown_tools
    words = re.match(r"[\w /-]{0,60}", inner)
    stem = words[0].casefold() if words is not None else ""
    if stem.startswith(tuple(_BRACKETED_CALL_WORDS)):
        return True
    name = re.match(r"[^\W\d][\w.\-]{0,120}", inner)
    if len(stem) == len(inner) or (name is not None and name.end() == len(inner)):
        may_be_name = name is not None and (names.is_prefix(name[0]) or first)
        words = (*_BRACKET_MARKER_WORDS, *_BRACKETED_CALL_WORDS)
        return may_be_name or any(word.startswith(stem) for word in words)
    known = name is not None and (names.is_known_from_start(name[0]) or (first and is_tool_like(name[0])))
    called = name is not None and inner[name.end()] in "( " and known
    return called or _BRACKET_MARKER.match(rest) is not None


def _examine_bracketed_words(position: ScanPosition, rest: str) -> ScanVerdict:
    marker = _BRACKET_MARKER.match(rest)
    if marker is not None:
        return _examine_bracket_marker(position, marker)
    call = _BRACKETED_CALL.match(rest)
    if call is not None:
        return _examine_bracketed_call(position, call)
    program = _BRACKETED_PROGRAM.match(rest)
    if program is not None:
        return _examine_bracketed_program(position, program[1])
    inner = rest.lstrip("[ ").casefold()
    is_cut = position.final and position.at + len(rest) == len(position.text) and "_" in inner
    begins = len(inner) >= 5 and any(word.startswith(inner) for word in _BRACKET_MARKER_WORDS)
    if is_cut and begins and not position.is_about_syntax:
        return HideUntil(len(position.text), "marker")
    return ShowUntil(position.at + 1)


_CALL_AFTER_MARKER: Final = prepare_re(
    r"\s{0,20}(?:[{<`]|\[\s{0,20}[{\w]|[\w.\-/]{1,100}\s{0,3}(?:\[(?:ARGS|CALL_ID)|[({]))"
)


def _examine_bracket_marker(position: ScanPosition, marker: re.Match[str]) -> ScanVerdict:
    end = position.at + marker.end()
    behind = position.read(end, 160)
    word, is_upper_case = marker["word"].casefold(), marker["word"].isupper()
    if position.is_about_syntax or (behind.startswith(("(", "]", ":")) and not is_upper_case):
        return ShowUntil(end)
    if word == "think":
        if not marker["word"].isupper() or not position.is_line_start:
            return ShowUntil(end)
        if marker["end"]:
            return HideUntil(end, "thought", is_stray=True)
        return HideUntil(end, "thought", UntilCloser(re.compile(r"\[/THINK\]")))
    if marker["end"] or word in _MARKER_PARTS:
        is_end = bool(marker["end"]) and (is_upper_case or position.is_line_start)
        is_left = is_end or position.follows_hidden
        return HideUntil(end, "mistral", is_stray=True) if is_left else ShowUntil(end)
    is_cut = not behind.strip() and (is_upper_case or "_" in word)
    is_call = is_cut or _CALL_AFTER_MARKER.match(behind)
    if not is_call and position.is_line_start:
        is_call = _BRACKET_MARKER_CLOSER.search(position.text, end, end + _MAX_BRACKETED_LENGTH)
        if is_call is None:
            position.read(end, _MAX_BRACKETED_LENGTH)
    if not is_call:
        return ShowUntil(end)
    return HideUntil(end, _get_marker_family(marker[0]), MarkedCall(_BRACKET_MARKER_CLOSER))


def _get_marker_family(marker: str) -> str:
    if re.search("[א-ת]", marker):
        return "hebrew"
    return "mistral" if marker.startswith(("[TOOL_CALLS", "[TOOL_RESULTS", "[AVAILABLE")) else "marker"


def _examine_bracketed_call(position: ScanPosition, found: re.Match[str]) -> ScanVerdict:
    """Examine `[Calling tool: get_weather({"city": "Haifa"})]`."""
    known = position.names.is_known(found[1]) and not found[0].endswith("]")
    invented = position.accepts_unknown_tools and (
        is_tool_like(found[1]) or re.search(r"(?:tool|function)[\s:]", found[0], re.I)
    )
    if not (is_distinctive(found[1]) and (known or invented)) or position.is_about_syntax:
        return ShowUntil(position.at + 1)
    end = position.find_end(position.at)
    return HideUntil(position.limit if end is None else end, "marker")


def _examine_bracketed_program(position: ScanPosition, name: str) -> ScanVerdict:
    """Examine `[get_weather(city="Haifa")]`: a list that contains only calls."""
    unknown = position.accepts_unknown_tools and is_tool_like(name) and not position.before.strip()
    if not (position.names.is_known(name) or unknown):
        return ShowUntil(position.at + 1)
    end = position.find_end(position.at)
    to = position.limit if end is None else end
    calls = parse_program_calls(position.text[position.at : to])
    is_call = any(unknown or position.names.is_known(call.name) for call in calls)
    is_cut = end is None and is_distinctive(name) and position.is_line_start
    is_call = is_cut or (is_call and all(call.has_keywords for call in calls))
    if is_call and not (position.is_about_syntax and position.line):
        return HideUntil(to, "pythonic")
    checked = position.at + _MAX_SEARCHED_LENGTH if end is None else to
    return ShowUntil(position.at + 1, values_checked_to=checked)


MARKER_LITERALS: Final = tuple(LISTS["marker words"])  # the longest first: each is matched literally
# Labels of a call in the middle of a line.
INLINE_LABELS: Final = (
    *(f"tool{space}{noun}:" for space in " _-" for noun in ("call", "calls", "use", "request", "invocation")),
    *(f"function{space}{noun}:" for space in " _-" for noun in ("call", "calls")),
    *(
        f"{verb} tool:"
        for verb in ("call", "calling", "use", "using", "run", "running", "executing", "invoking")
    ),
    "tool_code:",
    "mcp call:",
    "api call:",
    "invoke:",
)
INLINE_LABEL_WORDS: Final = tuple(label.removesuffix(":") for label in INLINE_LABELS)
MARKER_PATTERN: Final = prepare_re(
    rf"{'|'.join(map(re.escape, MARKER_LITERALS))}|\b(?:{'|'.join(map(re.escape, INLINE_LABELS))})"
    rf"|(?<!\w)[*_](?=(?:{'|'.join(map(re.escape, INLINE_LABEL_WORDS))})[*_]?:)",
    re.IGNORECASE,
)
_CALL_ADDRESS: Final = prepare_re(r"[a-z ]{0,30}to=([\w.]{2,120})", re.IGNORECASE)
_MAX_HEADER_LENGTH: Final = 260
_FLORET_CLOSER: Final = prepare_re(r"✿RESULT✿|✿RETURN✿:?", re.IGNORECASE)
_RETURN_WORD: Final = prepare_re(r"✿RETURN✿:?", re.IGNORECASE)
_THOUGHT_END_WORD: Final = prepare_re("◁/think▷")
_DECORATED_LABEL: Final = prepare_re(
    rf"(?:[(\[]|[*_`]{{1,3}})(?:{'|'.join(map(re.escape, INLINE_LABEL_WORDS))})"
    r"(?::[*_`]{0,3}|[*_`]{1,3}:)",
    re.IGNORECASE,
)
_MAX_DECORATED_LENGTH: Final = 40
_LABEL_TO_VALUE: Final = prepare_re(r"[ *`]{0,6}(?:\n\s{0,9})?(?P<fence>`{3}\w{0,12}\s{1,9})?(?=[{\[])")
_LABEL_TO_VALUE_START: Final = prepare_re(r"[ *`]{0,6}(?:\n\s{0,9})?(?:`{1,3}|`{3}\w{0,12}\s{0,9})?")
_LABEL_TO_PROGRAM: Final = prepare_re(r"[ *`]{0,6}(?P<name>[^\W\d][\w.]{0,120})\(")
_LABEL_TO_PROGRAM_START: Final = prepare_re(r"[ *`]{0,6}(?:[^\W\d][\w.]{0,120})?")
_LABEL_END: Final = prepare_re(r"[ \t*_`).\]]{0,12}(?=\n|\Z)")  # to the end of the line
_FENCE_END: Final = prepare_re(r"\s{0,9}`{3}")


def examine_marker_word(position: ScanPosition) -> ScanVerdict:
    """Examine the marker word at this position."""
    found = MARKER_PATTERN.match(position.text, position.at)
    word = found[0].casefold() if found is not None else ""
    end = position.at + max(1, len(word))
    if position.is_about_syntax or not word.strip("*_"):
        return ShowUntil(end)
    if word.endswith(":"):
        return _examine_inline_label(position, end)
    if word[0] == "✿":
        if "return" in word:
            return HideUntil(end + (position.read(end, 1) == ":"), "qwen", is_stray=True)
        is_result = "result" in word
        return HideUntil(end, "qwen", UntilCloser(_RETURN_WORD) if is_result else MarkedCall(_FLORET_CLOSER))
    if word[0] == "◁":
        closes = "/" in word
        return HideUntil(end, "thought", None if closes else UntilCloser(_THOUGHT_END_WORD), is_stray=closes)
    if word == "functools[":
        is_call = position.read(end, 1) == "{"
        return HideUntil(end - 1, "phi", MarkedCall(None)) if is_call else ShowUntil(end)
    return _examine_address(position, end)


def _examine_inline_label(position: ScanPosition, end: int) -> ScanVerdict:
    """Examine `Let me see. tool_call: {…}`. The label is hidden together with the value after it."""
    program = _examine_labelled_program(position, end)
    if program is not None:
        return program
    rest, complete = position.look_ahead(end, 40)
    if not complete and _LABEL_TO_VALUE_START.fullmatch(rest):
        raise MoreTextNeeded
    found = _LABEL_TO_VALUE.match(rest)
    if found is None:
        return ShowUntil(end)
    start = end + found.end()
    verdict = examine_json(replace(position, at=start))
    if isinstance(verdict, HideUntil):
        return _include_fence(position, verdict) if verdict.mode is None and found["fence"] else verdict
    names_tool = re.search(r"tool|function", position.text[position.at : end], re.IGNORECASE)
    to = position.find_end(start) if names_tool and position.accepts_unknown_tools else None
    if to is None:
        return ShowUntil(end)
    is_call = has_call_shape(position.text[start:to], position.request)
    if is_call or (position.text[start] == "{" and position.ends_line(to)):
        return HideUntil(to, "json")
    return ShowUntil(end)


def _examine_labelled_program(position: ScanPosition, end: int) -> ScanVerdict | None:
    """Examine `Let me see. Tool call: brew_tea(cups=2)` to the end of the line. None: not a call."""
    if not position.accepts_unknown_tools:
        return None
    rest, complete = position.look_ahead(end, 140)
    found = _LABEL_TO_PROGRAM.match(rest)
    if found is None and not complete and _LABEL_TO_PROGRAM_START.fullmatch(rest):
        raise MoreTextNeeded
    to = None if found is None else position.find_end(end + found.end() - 1)
    if found is None or to is None:
        return None
    calls = parse_program_calls(position.text[end + found.start("name") : to])
    is_call = any(is_distinctive(call.name) or (call.has_keywords and call.arguments) for call in calls)
    if not is_call or not position.ends_line(to):
        return None
    closing = _LABEL_END.match(position.text, to)
    return HideUntil(to if closing is None else closing.end(), "marker")


def _include_fence(position: ScanPosition, value: HideUntil) -> ScanVerdict:
    """Extend the hidden value by the end of the code block around it."""
    rest, complete = position.look_ahead(value.to, 12)
    closing = _FENCE_END.match(rest)
    if closing is None and not complete and not rest.strip("` \t\n"):
        raise MoreTextNeeded
    return value if closing is None else replace(value, to=value.to + closing.end())


def examine_decorated_label(position: ScanPosition) -> ScanVerdict | None:
    """Examine `Let me see. **Tool call**: {…}` like a plain label. Return None if there is no such label."""
    if position.is_about_syntax:
        return None
    rest, complete = position.look_ahead(position.at, _MAX_DECORATED_LENGTH)
    found = _DECORATED_LABEL.match(rest)
    if found is not None:
        verdict = _examine_inline_label(position, position.at + found.end())
        return None if isinstance(verdict, ShowUntil) else verdict
    written = rest.lstrip("([*_`").casefold()
    matches = (
        word.startswith(written) or (written.startswith(word) and not written[len(word) :].strip("*_`:"))
        for word in INLINE_LABEL_WORDS
    )
    if not complete and any(matches):
        raise MoreTextNeeded
    return None


def _examine_address(position: ScanPosition, end: int) -> ScanVerdict:
    """Examine `to=functions.get_weather json {…}`: an address, at most one line break, and the arguments."""
    rest, complete = position.look_ahead(position.at, _MAX_HEADER_LENGTH)
    header, brace, _ = rest.partition("{")
    if header.count("\n") > 1 or (not brace and complete):
        return ShowUntil(end)
    if not brace:
        raise MoreTextNeeded
    address = _CALL_ADDRESS.match(header)
    name = address[1] if address is not None else ""
    if position.names.is_known(name) or name.lower().startswith(("functions.", "tools.")):
        return HideUntil(position.at + len(header), "harmony", MarkedCall(None))
    return ShowUntil(end)
