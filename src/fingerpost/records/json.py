"""JSON values, and the bounds within which we are willing to hold one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
else:
    Json = Any  # a codec passes JSON through as it is: checking every node again would cost and find nothing

JsonObject: TypeAlias = Mapping[str, Json]

MAX_DEPTH = 100
MAX_INTEGER_DIGITS = 4000  # Python itself refuses to print integers a little longer than this


def check_json(value: object, *, max_depth: int = MAX_DEPTH) -> str | None:
    """Why `value` cannot be carried as JSON, or None when it can.

    Checked without recursion: the depth is the sender's choice, our stack is not.
    """
    todo: list[tuple[object, int]] = [(value, 0)]
    while todo:
        node, depth = todo.pop()
        if depth > max_depth:
            return f"is nested more than {max_depth} levels deep"
        if isinstance(node, Mapping):
            entries = cast("Mapping[object, object]", node)
            for key, entry in entries.items():
                if not isinstance(key, str) or has_lone_surrogate(key):
                    return f"has a key that is not text: {key!r:.60}"
                todo.append((entry, depth + 1))
        elif isinstance(node, list | tuple):
            todo.extend((item, depth + 1) for item in cast("Sequence[object]", node))
        elif (reason := _check_scalar(node)) is not None:
            return reason
    return None


def _check_scalar(node: object) -> str | None:
    if node is None or isinstance(node, bool):
        return None
    if isinstance(node, str):
        return "holds text that is not valid Unicode" if has_lone_surrogate(node) else None
    if isinstance(node, int):
        too_long = node.bit_length() > MAX_INTEGER_DIGITS * 3.32
        return f"holds an integer of more than {MAX_INTEGER_DIGITS} digits" if too_long else None
    if isinstance(node, float):
        return None if math.isfinite(node) else f"holds {node}, which JSON cannot say"
    return f"holds a {type(node).__name__}, which JSON cannot say"


def has_lone_surrogate(text: str) -> bool:
    """Half a character: legal in a Python string, impossible to encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def as_valid_text(text: str) -> str:
    """`text` with every half character replaced, so that it can be stored and sent."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
