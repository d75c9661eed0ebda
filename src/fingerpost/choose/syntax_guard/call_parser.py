"""Parse the tool calls in a block of text: JSON, tags, Python and YAML."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from fingerpost.choose.syntax_guard.vocabulary import (
    WORDS,
    WrittenToolNames,
    describes_action,
    is_distinctive,
    is_namespaced,
    is_tool_like,
)
from fingerpost.frozen import frozen
from fingerpost.llm.content import remove_spare_commas
from fingerpost.records import Json, JsonObject, find_json_problem
from fingerpost.records.json import parse_strict_json, refuse_constant
from fingerpost.regex import prepare_re

MAX_CALLS: Final = 32  # per block
_MAX_NESTING: Final = 4  # of wrapper objects

_TOOL_NAME_KEYS: Final = WORDS["name keys"]
_ARGUMENT_KEYS: Final = WORDS["argument keys"]
_WRAPPER_KEYS: Final = WORDS["wrapper keys"]
CALL_KEYS: Final = _TOOL_NAME_KEYS | _ARGUMENT_KEYS | _WRAPPER_KEYS | WORDS["accompanying keys"]
_TOOL_NAME: Final = prepare_re(r"[^\W\d][\w.\-/:]{1,120}")
_IGNORED_KEY_CHARACTERS: Final = prepare_re(r"[\W_]+")


class MoreTextNeeded(Exception):
    """The text so far does not decide what it is. It never leaves the scanner, which waits for more text."""


@frozen
class WrittenCall:
    """A tool call found in text."""

    name: str
    arguments: JsonObject | None
    has_keywords: bool = True  # in program text: every argument is a keyword argument
    is_explicit: bool = False  # in JSON: a tool's name, and an object with only its arguments
    is_doubtful: bool = False  # in JSON: as above, but the name may be that of a data record


def fold_key(key: str) -> str:
    return _IGNORED_KEY_CHARACTERS.sub("", key).casefold()


def find_calls(value: object, names: WrittenToolNames, *, depth: int = 0) -> tuple[WrittenCall, ...]:
    """Return the calls if the JSON value consists of calls, else nothing."""
    if depth > _MAX_NESTING:
        return ()
    if isinstance(value, list):
        values = cast("Sequence[object]", value)
        if (
            len(values) == 2
            and isinstance(values[0], str)
            and isinstance(values[1], dict)
            and names.is_known(values[0])
        ):
            return (WrittenCall(name=values[0], arguments=parse_json_arguments(cast("object", values[1]))),)
        found: list[WrittenCall] = []
        for value in values[:MAX_CALLS]:
            calls = find_calls(value, names, depth=depth + 1)
            if not calls:
                return ()
            found.extend(calls)
        return tuple(found)
    if not isinstance(value, dict) or not value:
        return ()
    entries = {fold_key(str(key)): item for key, item in cast("Mapping[object, object]", value).items()}
    written = cast("Mapping[object, object]", value)
    if len(written) == 1 and (only := _parse_call_named_by_key(written, names)):
        return (only,)
    if not entries.keys() <= CALL_KEYS:
        return ()
    return _find_wrapped_calls(entries, names, depth) or _parse_plain_call(entries)


def _parse_call_named_by_key(value: Mapping[object, object], names: WrittenToolNames) -> WrittenCall | None:
    """Parse `{"get_weather": {"city": "Haifa"}}`."""
    ((key, item),) = value.items()
    if not isinstance(key, str) or not is_distinctive(key) or not isinstance(item, dict):
        return None
    arguments = parse_json_arguments(cast("object", item))
    asks = arguments is not None and not WORDS["request keys"].isdisjoint(map(fold_key, arguments))
    acts = describes_action(key)
    if not names.is_known(key) and (acts is False or fold_key(key) in CALL_KEYS):
        return None
    sure = is_namespaced(key) or acts is True or asks
    return WrittenCall(name=key, arguments=arguments, is_explicit=sure, is_doubtful=not sure)


def _find_wrapped_calls(
    entries: Mapping[str, object], names: WrittenToolNames, depth: int
) -> tuple[WrittenCall, ...]:
    for key, item in entries.items():
        inside = key in _WRAPPER_KEYS or (key in _TOOL_NAME_KEYS and isinstance(item, dict))
        remote = key == "params" and entries.get("method") == "tools/call"
        if (inside or remote) and isinstance(item, dict | list):
            return find_calls(cast("object", item), names, depth=depth + 1)
    return ()


def _parse_plain_call(entries: Mapping[str, object]) -> tuple[WrittenCall, ...]:
    named = next((key for key in entries if key in _TOOL_NAME_KEYS and isinstance(entries[key], str)), None)
    if named is None:
        return ()
    written = str(entries[named])
    given = next((key for key in entries if key in _ARGUMENT_KEYS), None)
    if given is None and not is_distinctive(written):
        return ()
    arguments: JsonObject | None = parse_json_arguments(entries[given]) if given is not None else {}
    if arguments is None and not is_distinctive(written):
        return ()
    properties = None if arguments is None else arguments.get("properties")
    if isinstance(properties, dict) or (arguments is not None and arguments.get("type") == "object"):
        return ()  # the parameters of a definition, not the arguments of a call
    whole = arguments is not None or given in WORDS["sure argument keys"]
    explicit = given is not None and whole and _TOOL_NAME.fullmatch(written) is not None
    vague = named in WORDS["vague name keys"] and given not in WORDS["sure argument keys"]
    sure = is_distinctive(written) or not vague
    return (WrittenCall(name=written, arguments=arguments, is_explicit=explicit and sure),)


def parse_json_arguments(value: object) -> JsonObject | None:
    """Return the arguments, also from JSON in a string, or None if they are neither."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if value is None:
        return {}
    if not isinstance(value, dict) or find_json_problem(cast("object", value)) is not None:
        return None
    return cast("dict[str, Json]", value)


MAX_PROGRAM_LENGTH: Final = 16_000
_MAX_LITERAL_DEPTH: Final = 60
_MAX_BRACKETS: Final = 10 * _MAX_LITERAL_DEPTH
_NESTING_SIGNS: Final = prepare_re(r"[\[({\])}]|[-+~]{3,}")
_WRAPPER_WORDS: Final = frozenset({"print", "await"})
_LITERAL_ERRORS: Final = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


def parse_program_calls(text: str) -> tuple[WrittenCall, ...]:
    """Return the calls if the text consists of Python calls or lists of calls with literal values."""
    calls = [_parse_call_node(node) for node in _parse_values(text, ast.Expr)]
    return tuple(call for call in calls if call is not None) if None not in calls else ()


def parse_session_calls(text: str) -> tuple[WrittenCall, ...]:
    """Return the calls of a Python session. Return nothing if it shows output or imports a module."""
    lines = [line.strip() for line in text.strip().splitlines()]
    if not all(line.startswith((">>>", "...")) for line in lines):
        return ()
    program = "\n".join(line[3:].removeprefix(" ") for line in lines)
    calls = map(_parse_call_node, _parse_values(program, ast.Expr, ast.Assign))
    return tuple(call for call in calls if call is not None)


def _parse_values(text: str, *kinds: type[ast.Expr | ast.Assign]) -> list[ast.expr]:
    """Return the values of the statements. Return nothing if a statement is of another kind."""
    tree = _parse_python(text)
    values: list[ast.expr] = []
    for statement in () if tree is None else tree.body[:MAX_CALLS]:
        if not isinstance(statement, kinds):
            return []
        values += _iterate_members(statement.value)
    return values


def _parse_python(text: str) -> ast.Module | None:
    text = text.strip()
    if len(text) > MAX_PROGRAM_LENGTH or _is_too_deep(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except _LITERAL_ERRORS:
        return None


def _is_too_deep(text: str) -> bool:
    """Return whether the text is nested too deeply for Python's parser, which can crash on it."""
    depth = brackets = 0
    for sign in _NESTING_SIGNS.findall(text):
        opens = sign in "[({"
        brackets += opens
        depth += 1 if opens else -1
        if depth > _MAX_LITERAL_DEPTH or len(sign) > _MAX_LITERAL_DEPTH or brackets > _MAX_BRACKETS:
            return True
    return False


def _iterate_members(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Await):
        node = node.value
    if isinstance(node, ast.List | ast.Tuple):
        yield from node.elts[:MAX_CALLS]
    elif isinstance(node, ast.Call) and _get_dotted_name(node.func) in _WRAPPER_WORDS and len(node.args) == 1:
        yield node.args[0]
    else:
        yield node


def _parse_call_node(node: ast.expr) -> WrittenCall | None:
    if not isinstance(node, ast.Call):
        return None
    name = _get_dotted_name(node.func)
    if not name:
        return None
    values: dict[str, object] = {}
    try:
        for keyword in node.keywords:
            values[keyword.arg or ""] = ast.literal_eval(keyword.value)
    except _LITERAL_ERRORS:
        return WrittenCall(name=name, arguments=None)
    # A positional value could belong to any parameter, so do not guess.
    arguments = None if node.args or "" in values else parse_json_arguments(values)
    return WrittenCall(name=name, arguments=arguments, has_keywords=not node.args)


def _get_dotted_name(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join((node.id, *reversed(parts)))


_OUTSIDE_STRING: Final = prepare_re(r"[\"'\[\](){}<]")
_PLAIN_BRACKETS: Final = prepare_re(r"[\"'\[\](){}]")
_INSIDE_STRING: Final = {'"': prepare_re(r'\\.|"', re.DOTALL), "'": prepare_re(r"\\.|'", re.DOTALL)}
_OPENING_BRACKETS: Final = frozenset("[({")


class BracketReader:
    """An incremental search for the end of a bracketed value. Call `find_end` until it returns the end."""

    def __init__(self, *, markers: bool = True) -> None:
        self._outside = _OUTSIDE_STRING if markers else _PLAIN_BRACKETS
        self.at = 0  # end of the text read so far
        self.broken = False  # a marker came before the closing bracket
        self._depth = 0
        self._quote = ""

    def find_end(self, text: str, start: int, *, final: bool = False) -> int | None:
        """Return the end of the value that starts or continues at `start`, or None if incomplete."""
        self.at = start
        while True:
            pattern = _INSIDE_STRING[self._quote] if self._quote else self._outside
            found = pattern.search(text, self.at)
            if found is None:
                waits = self._quote and text.endswith("\\") and not final
                self.at = max(self.at, len(text) - 1) if waits else len(text)
                return None
            if found[0] == "<" and found.end() == len(text) and not final:
                self.at = found.start()
                return None
            if self._handle_sign(found, text):
                return self.at

    def _handle_sign(self, found: re.Match[str], text: str) -> bool:
        sign = found[0]
        self.at = found.end()
        if self._quote:
            self._quote = "" if sign == self._quote else self._quote
        elif sign in "\"'":
            self._quote = sign
        elif sign == "<":
            self.broken = text[found.end() : found.end() + 1] in ("/", "|")
            self.at = found.start() if self.broken else found.end()
            return self.broken
        elif sign in _OPENING_BRACKETS:
            self._depth += 1
        else:
            self._depth -= 1
            return self._depth <= 0
        return False


def find_value_end(text: str, start: int, *, final: bool = False) -> int | None:
    """Return the end of the bracketed value at `start`, or None."""
    brackets = BracketReader()
    end = brackets.find_end(text, start, final=final)
    return None if brackets.broken else end


MAX_BLOCK_LENGTH: Final = 64_000  # characters examined
_MAX_PARSE_ATTEMPTS: Final = 60
_JSON_OPENING: Final = prepare_re(r"[{\[]")
_NAME_WORD: Final = prepare_re(r"[^\W\d][\w.\-/:]{0,120}")
_OBSERVATION_LABEL: Final = prepare_re(
    r"^[ \t>*_#-]{0,12}(?:observation|תצפית)[ \t]?\d{0,3}[ \t*_]{0,4}:", re.IGNORECASE | re.MULTILINE
)
_NAMED_TAG: Final = prepare_re(
    r"(?:<\s*(?:[\w|]{1,20}[:|])?(?:invoke|function|tool|call|tool_call|function_call|tool_use)\b[^<>]{0,60}?"
    r"(?:name|tool)\s*=\s*[\"']?|<\s*function\s*=\s*[\"']?|<\s*tool\s*=\s*[\"']?|call tool=\")"
    r"([\w.\-/:]{1,120})",
    re.IGNORECASE,
)
_PARAMETER_TAG: Final = prepare_re(
    r"<\s*(?:[\w|]{1,20}[:|])?(?:parameter|param|arg|argument)(?:\s+[^<>]{0,40}?(?:name|key)\s*=\s*"
    r"|\s*=\s*)[\"']?"
    r"([\w.\-]{1,80})[\"']?(?:\s[^<>]{0,60})?>(.*?)(?:<\s*/\s*(?:[\w|]{1,20}[:|])?(?:parameter|param"
    r"|arg|argument)\s*>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_TAG_PAIR: Final = prepare_re(
    r"<\s*arg_key\s*>\s*([\w.\-]{1,80})\s*<\s*/\s*arg_key\s*>\s*<\s*arg_value\s*>(.{0,8000}?)<\s*/\s*arg_value\s*>",
    re.IGNORECASE | re.DOTALL,
)
_OPEN_TAG_PAIR: Final = prepare_re(
    r'argument key="([\w.\-]{1,80})"[^<>]{0,60}<\|sep\|>(.{0,8000}?)<\|close\|>', re.DOTALL
)
_LEAF_TAG: Final = prepare_re(r"<\s*([^\W\d][\w\-]{0,80})\s*>([^<]*)<\s*/\s*\1\s*>")
_JSON_DECODER: Final = json.JSONDecoder(parse_constant=refuse_constant, strict=False)


def parse_calls(block: str, names: WrittenToolNames) -> tuple[WrittenCall, ...]:
    """Return the calls in this block, including calls of unknown tools."""
    text = block[:MAX_BLOCK_LENGTH]
    found = tuple(_parse_json_calls(text, names))[:MAX_CALLS]
    # A name alone counts only when no other parser finds arguments.
    if found and any(call.arguments for call in found):
        return found
    marks = [(found.start(), found[1]) for found in _NAMED_TAG.finditer(text)][:MAX_CALLS]
    if not marks:
        words = ((word.start(), word[0]) for word in _NAME_WORD.finditer(text[:400]))
        marks = [mark for mark in words if names.is_known(mark[1])][:1]
    calls: list[WrittenCall] = []
    for index, (start, name) in enumerate(marks[:MAX_CALLS]):
        end = marks[index + 1][0] if index + 1 < len(marks) else len(text)
        arguments = _parse_tag_arguments(text[start:end], name)
        if arguments is not None:
            calls.append(WrittenCall(name=name, arguments=arguments))
    return tuple(calls) or found or _parse_program_in_text(text, names) or _parse_name_only(text, names)


def cut_at_observation(block: str) -> str:
    """Cut a script at its first observation. The model invented it, so later steps must not run."""
    found = _OBSERVATION_LABEL.search(block, 0, MAX_BLOCK_LENGTH)
    return block if found is None else block[: found.start()]


def parse_json_value(text: str) -> object:
    """Parse the text as JSON, also with a trailing comma, or as a Python literal. Return None otherwise."""
    for candidate in (text, remove_spare_commas(text)):
        try:
            return parse_strict_json(candidate, control_characters=True)
        except ValueError:
            continue
    tree = _parse_python(text)
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        return None
    try:
        return ast.literal_eval(tree.body[0].value)
    except _LITERAL_ERRORS:
        return None


def _parse_json_calls(text: str, names: WrittenToolNames) -> Iterator[WrittenCall]:
    """Parse calls in JSON. An object that is not a call gives the arguments of the name before it."""
    at = behind = 0
    for _ in range(_MAX_PARSE_ATTEMPTS):
        opening = _JSON_OPENING.search(text, at)
        if opening is None:
            return
        value, at = _parse_value_at(text, opening.start())
        if value is None:
            # In a truncated object, a complete inner object is only a part of the arguments.
            if opening[0] == "{":
                return
            at = opening.end()
            continue
        calls = find_calls(value, names)
        if not calls and isinstance(value, dict):
            words = [found[0] for found in _NAME_WORD.finditer(text[behind : opening.start()][-400:])]
            name = next((word for word in reversed(words) if names.is_known(word)), "")
            arguments = parse_json_arguments(cast("object", value))
            calls = (WrittenCall(name=name, arguments=arguments),) if name else ()
        if calls:
            behind = at
        yield from calls


def _parse_value_at(text: str, start: int) -> tuple[object, int]:
    """Return the value that starts here and its end. The value is None when it cannot be parsed."""
    try:
        return _JSON_DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        end = find_value_end(text, start, final=True)
    return (None, start) if end is None else (parse_json_value(text[start:end]), end)


def _parse_tag_arguments(text: str, name: str) -> JsonObject | None:
    for pattern in (_PARAMETER_TAG, _TAG_PAIR, _OPEN_TAG_PAIR):
        if found := pattern.findall(text):
            return {key: _parse_tag_value(value) for key, value in found[:MAX_CALLS]}
    leaves = [
        (key, value)
        for key, value in _LEAF_TAG.findall(text)
        if key.lower() not in WORDS["wrapper tags"] and key != name
    ]
    return {key: _parse_tag_value(value) for key, value in leaves[:MAX_CALLS]} or None


def _parse_tag_value(text: str) -> Json:
    """Parse the content of a tag: a number, boolean or container as JSON, anything else as text."""
    inner = text.strip("\n")
    try:
        value: object = parse_strict_json(inner)
    except ValueError:
        return inner
    if isinstance(value, str) or find_json_problem(value) is not None:
        return inner
    return cast("Json", value)


_CALL_IN_TEXT: Final = prepare_re(r"\[?\s*(?:print\(\s*)?[^\W\d][\w.]{0,120}\s*\(")


def _parse_program_in_text(text: str, names: WrittenToolNames) -> tuple[WrittenCall, ...]:
    """Parse Python calls inside the block, up to the end of the line or the block."""
    for found in list(_CALL_IN_TEXT.finditer(text))[:8]:
        end = _find_program_end(text, found.start())
        calls = parse_program_calls(text[found.start() : end])
        if any(names.is_known(call.name) for call in calls):
            return calls
    return ()


def _find_program_end(text: str, start: int) -> int:
    from_last = max(text.rfind(")", start), text.rfind("]", start))
    marker = text.find("<", start)
    if marker >= 0 and from_last > marker:
        from_last = max(text.rfind(")", start, marker), text.rfind("]", start, marker))
    return from_last + 1 if from_last >= 0 else len(text)


def _parse_name_only(text: str, names: WrittenToolNames) -> tuple[WrittenCall, ...]:
    """Return a call without arguments for a known tool name in a block that has nothing else to parse."""
    name = next((found[0] for found in _NAME_WORD.finditer(text[:600]) if names.is_known(found[0])), "")
    return (WrittenCall(name=name, arguments=None),) if name else ()


_PYTHON_PROMPT: Final = prepare_re(
    r"[ \t]{0,4}>>> ?(?:await |[^\W\d]\w{0,40} ?= ?(?:await )?)?[^\W\d][\w.]{0,120}\("
)
_YAML_NAME_KEYS: Final = ("tool", "tool_name", "function", "function_name", "action", "name")
_YAML_ARGUMENT_KEYS: Final = ("arguments", "args", "parameters", "params", "inputs", "input", "kwargs")
_YAML_NAME: Final = prepare_re(
    rf"[ \t]{{0,4}}(?:- {{1,3}})?(?P<key>{'|'.join(_YAML_NAME_KEYS)}):[ \t]{{1,4}}"
    r"[\"']?(?P<name>[\w.\-/]{2,120})[\"']?[ \t]{0,9}\n",
    re.IGNORECASE,
)
_YAML_ARGUMENTS: Final = prepare_re(
    rf"[ \t]{{0,9}}(?:{'|'.join(_YAML_ARGUMENT_KEYS)}):[ \t]{{0,9}}\n", re.IGNORECASE
)
_YAML_ENTRY: Final = prepare_re(r"[ \t]{1,20}[\w\-]{1,80}:(?:[ \t][^\n]{0,2000})?(?:\n|\Z)")
_YAML_WRAPPERS: Final = ("tool_call", "tool_calls", "function_call", "function_calls", "calls")
_YAML_WRAPPER: Final = prepare_re(rf"[ \t]{{0,4}}(?:{'|'.join(_YAML_WRAPPERS)}):\n", re.IGNORECASE)
_BLOCK_START: Final = prepare_re(
    r"[ \t]{0,4}(?:>{0,3}|>>> ?[\w =.]{0,180}|(?:- {0,3})?(?P<key>[a-z_]{0,20})"
    r"|(?:- {1,3})?(?P<whole>[a-z_]{1,20}):[ \t]{0,4}[\"']?[\w.\-/]{0,120}[\"']?[ \t]{0,9}"
    r"(?:\n[ \t]{0,9}(?P<second>[a-z]{0,12}):?[ \t]{0,9})?)\Z",
    re.IGNORECASE,
)
_PARAGRAPH_END: Final = prepare_re(r"\n[ \t]{0,9}(?=\n|[`~]{3})")


def may_begin_block(text: str, *, complete: bool) -> bool:
    """Return whether lines with this beginning can be a call. Raises `MoreTextNeeded` if this is open."""
    if _PYTHON_PROMPT.match(text):
        return True
    wrapper = _YAML_WRAPPER.match(text)
    if wrapper is not None:
        text = text[wrapper.end() :]
    name = _YAML_NAME.match(text)
    if name is not None and _YAML_ARGUMENTS.match(text, name.end()):
        return True
    if not complete and _may_continue_block(text):
        raise MoreTextNeeded
    return False


def _may_continue_block(text: str) -> bool:
    start = _BLOCK_START.match(text)
    if start is None:
        return False
    key, whole, second = (start[part] for part in ("key", "whole", "second"))
    wraps = whole is not None and start.end("whole") + 1 == len(text) and whole.casefold() in _YAML_WRAPPERS
    known = whole is None or whole.casefold() in _YAML_NAME_KEYS or wraps
    keys = (*_YAML_NAME_KEYS, *_YAML_WRAPPERS)
    likely = key is None or any(word.startswith(key.casefold()) for word in keys)
    follows = not second or any(word.startswith(second.casefold()) for word in _YAML_ARGUMENT_KEYS)
    return known and likely and follows


def find_paragraph_end(text: str, start: int, limit: int) -> int | None:
    """Return the end of the paragraph at `start`, or None if it is not before `limit`."""
    found = _PARAGRAPH_END.search(text, start, limit)
    return None if found is None else found.start()


def find_call_block_end(text: str) -> int:
    """Return the end of the call at the start of this paragraph, or 0 if there is none."""
    if _PYTHON_PROMPT.match(text):
        names = [call.name for call in parse_session_calls(text)]
        return len(text) if any(map(_may_be_tool_name, names)) else 0
    wrapper = _YAML_WRAPPER.match(text)
    end = start = 0 if wrapper is None else wrapper.end()
    while (following := _find_yaml_call_end(text, end, wrapped=start > 0)) > end:
        end = following
    return end if end > start else 0


def _may_be_tool_name(name: str) -> bool:
    """Return whether a function name may be a tool's. A method name must describe an action."""
    own = name.rpartition(".")[2]
    return is_distinctive(own) and (own == name or describes_action(name) is True)


def _find_yaml_call_end(text: str, start: int, *, wrapped: bool) -> int:
    """Return the end of one YAML call: a tool's name and an object with only its arguments."""
    name = _YAML_NAME.match(text, start)
    arguments = None if name is None else _YAML_ARGUMENTS.match(text, name.end())
    if name is None or arguments is None or not is_distinctive(name["name"]):
        return start
    if not wrapped and name["key"].casefold() == "name" and not is_tool_like(name["name"]):
        return start
    end = first = arguments.end()
    while (entry := _YAML_ENTRY.match(text, end)) is not None and end < len(text):
        end = entry.end()
    return end if end > first else start


MAX_BARE_CALL_LENGTH: Final = 2_000
_CALLING_WORDS: Final = WORDS["calling words"]
_CALL_WORDS: Final = _CALLING_WORDS | WORDS["neutral words"]
_BARE_NAME: Final = prepare_re(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z][a-z0-9]+(?:[A-Z][a-z0-9]+)+")
_BARE_TOKEN: Final = prepare_re(r"[^\W\d][\w.\-]*")
_ARGUMENT_PATTERN: Final = prepare_re(
    r"\"(?:[^\"\\]|\\.)*\"|(?<!\w)'(?:[^'\\]|\\.)*'|[\w\-]+[ \t]*=[ \t]*[^\s,;)\]}|>]*"
    r"|^[ \t]+(?:- )?[\w\-]{1,40}:(?!//)[^\n]*$|\b[\w\-]{1,40}:(?!//)[ \t]*[\w.\-\"]+",
    re.MULTILINE,
)
_OPENING_BRACKET: Final = prepare_re(r"[({\[]")
_DIRECT_CALL: Final = prepare_re(r"\s?(?:\[[^\[\]\n]{0,300}\]|\([^()\n]{0,300}\))")
_CODE_FENCE: Final = prepare_re(r"\A\s*[`~]{3,}\w*\s*|\s*[`~]{3,}\s*\Z")
_NOT_A_CALL_END: Final = prepare_re(r"=\s*\Z|>>>\s*\Z")  # an assignment or a session prompt


def may_be_bare_call(text: str) -> bool:
    """Return whether an answer with this beginning may consist of a call only."""
    if len(text) > MAX_BARE_CALL_LENGTH:
        return False
    first = text.lstrip()[:1]
    if first in ("{", "["):
        return True
    for found in _BARE_TOKEN.finditer(text):
        if found.end() == len(text):
            return True  # the word may continue
        written = found[0].rstrip(".-")
        if _is_tool_like_name(written):
            return True
        if not _is_call_word(written):
            return False
    return True


def is_bare_call(text: str) -> bool:
    """Return whether the whole answer is a call."""
    if len(text) > MAX_BARE_CALL_LENGTH or not may_be_bare_call(text):
        return False
    inner = _CODE_FENCE.sub("", text).strip()
    if inner.startswith(("{", "[")) and (value := parse_json_value(inner)) is not None:
        return isinstance(value, dict) and _is_json_call(cast("Mapping[str, object]", value))
    tokens = _BARE_TOKEN.finditer(text)
    name = next((found for found in tokens if _is_tool_like_name(found[0].rstrip(".-"))), None)
    if name is None:
        return False
    lead, behind = text[: name.start()], text[name.start() + len(name[0].rstrip(".-")) :].lstrip("\"'")
    before = _BARE_TOKEN.findall(lead)
    is_tag = lead.strip() == "<" and behind.rstrip().endswith("/>")
    is_announced = is_tag or any(map(_is_calling_word, before))
    if _NOT_A_CALL_END.search(lead) or not (is_announced or _OPENING_BRACKET.match(behind.lstrip())):
        return False
    left = _ARGUMENT_PATTERN.sub(" ", _DIRECT_CALL.sub(" ", behind, count=1) if is_announced else behind)
    return has_only_call_words(left)


def has_only_call_words(text: str) -> bool:
    """Return whether the text contains only words about tools and calls."""
    return all(_is_call_word(word) or _is_tool_like_name(word) for word in _BARE_TOKEN.findall(text))


def _is_call_word(word: str) -> bool:
    parts = [part for part in re.split(r"[_.\-]+", word.casefold()) if part]
    return bool(parts) and _CALL_WORDS.issuperset(parts)


def _is_calling_word(word: str) -> bool:
    return any(part in _CALLING_WORDS for part in re.split(r"[_.\-]+", word.casefold()))


def _is_tool_like_name(word: str) -> bool:
    return _BARE_NAME.fullmatch(word) is not None and not _is_call_word(word)


def _is_json_call(value: Mapping[str, object]) -> bool:
    """Return whether the object is a call such as `{"tool": "brew_tea", "cups": 2}`."""
    name_keys = (_TOOL_NAME_KEYS - {"name"}) | WORDS["json name fields"]
    named = (item for key, item in value.items() if fold_key(key) in name_keys)
    return any(isinstance(item, str) and _is_tool_like_name(item) for item in named)
