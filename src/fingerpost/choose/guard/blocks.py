"""Calls that take up lines of their own and have no marker: a Python session without any output, YAML.

A session that shows what came back is an example, and so is YAML with keys that no call has. What is left
calls a tool, wherever nothing says that a person wants to see code.
"""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard.literals import parse_session_calls
from fingerpost.choose.guard.names import has_action_name, is_distinctive, is_tool_like

_PYTHON_PROMPT: Final = re.compile(
    r"[ \t]{0,4}>>> ?(?:await |[^\W\d]\w{0,40} ?= ?(?:await )?)?[^\W\d][\w.]{0,120}\("
)
_YAML_NAME_KEYS: Final = ("tool", "tool_name", "function", "function_name", "action", "name")
_YAML_ARGUMENT_KEYS: Final = ("arguments", "args", "parameters", "params", "inputs", "input", "kwargs")
_YAML_NAME: Final = re.compile(
    rf"[ \t]{{0,4}}(?:- {{1,3}})?(?P<key>{'|'.join(_YAML_NAME_KEYS)}):[ \t]{{1,4}}"
    r"[\"']?(?P<name>[\w.\-/]{2,120})[\"']?[ \t]{0,9}\n",
    re.IGNORECASE,
)
_YAML_ARGUMENTS: Final = re.compile(
    rf"[ \t]{{0,9}}(?:{'|'.join(_YAML_ARGUMENT_KEYS)}):[ \t]{{0,9}}\n", re.IGNORECASE
)
_YAML_ENTRY: Final = re.compile(r"[ \t]{1,20}[\w\-]{1,80}:(?:[ \t][^\n]{0,2000})?(?:\n|\Z)")
_YAML_WRAPPERS: Final = ("tool_call", "tool_calls", "function_call", "function_calls", "calls")
_YAML_WRAPPER: Final = re.compile(rf"[ \t]{{0,4}}(?:{'|'.join(_YAML_WRAPPERS)}):\n", re.IGNORECASE)
_BLOCK_START: Final = re.compile(
    r"[ \t]{0,4}(?:>{0,3}|>>> ?[\w =.]{0,180}|(?:- {0,3})?(?P<key>[a-z_]{0,20})"
    r"|(?:- {1,3})?(?P<whole>[a-z_]{1,20}):[ \t]{0,4}[\"']?[\w.\-/]{0,120}[\"']?[ \t]{0,9}"
    r"(?:\n[ \t]{0,9}(?P<second>[a-z]{0,12}):?[ \t]{0,9})?)\Z",
    re.IGNORECASE,
)
_PARAGRAPH_END: Final = re.compile(r"\n[ \t]{0,9}(?=\n|[`~]{3})")


def may_begin_block(text: str) -> bool | None:
    """Whether lines that begin so can be a call; None: too little has come."""
    if _PYTHON_PROMPT.match(text):
        return True
    wrapper = _YAML_WRAPPER.match(text)
    if wrapper is not None:
        text = text[wrapper.end() :]
    name = _YAML_NAME.match(text)
    if name is not None and _YAML_ARGUMENTS.match(text, name.end()):
        return True
    begun = _BLOCK_START.match(text)
    if begun is None:
        return False
    key, whole, second = (begun[part] for part in ("key", "whole", "second"))
    wraps = whole is not None and begun.end("whole") + 1 == len(text) and whole.casefold() in _YAML_WRAPPERS
    known = whole is None or whole.casefold() in _YAML_NAME_KEYS or wraps
    likely = key is None or any(
        word.startswith(key.casefold()) for word in (*_YAML_NAME_KEYS, *_YAML_WRAPPERS)
    )
    follows = not second or any(word.startswith(second.casefold()) for word in _YAML_ARGUMENT_KEYS)
    return None if known and likely and follows else False


def find_paragraph_end(text: str, start: int, limit: int) -> int | None:
    """Where the paragraph that begins at `start` ends; None: not before `limit`."""
    found = _PARAGRAPH_END.search(text, start, limit)
    return None if found is None else found.start()


def find_call_block_end(text: str) -> int:
    """Where the call ends that this paragraph begins with; 0: it begins with none."""
    if _PYTHON_PROMPT.match(text):
        names = [call.name for call in parse_session_calls(text)]
        return len(text) if any(map(_may_be_tool_name, names)) else 0
    wrapper = _YAML_WRAPPER.match(text)
    end = start = 0 if wrapper is None else wrapper.end()
    while (following := _find_yaml_call_end(text, end, wrapped=start > 0)) > end:
        end = following
    return end if end > start else 0


def _may_be_tool_name(name: str) -> bool:
    """Whether a function may be a tool's; a method is one only if its name says what it does."""
    own = name.rpartition(".")[2]
    return is_distinctive(own) and (own == name or has_action_name(name) is True)


def _find_yaml_call_end(text: str, start: int, *, wrapped: bool) -> int:
    """Behind one call in YAML: a tool's name, and an object that is nothing but its arguments."""
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
