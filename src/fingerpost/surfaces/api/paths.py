"""Which operation a method and a path lead to.

The path is taken apart before it is decoded: a `%2F` inside of a name separates nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from fingerpost.frozen import frozen
from fingerpost.surfaces.api.operation import ApiOperation
from fingerpost.surfaces.web.asgi import AsgiScope, HttpError

MAX_PART_LENGTH: Final = 2000  # characters of one part of a path


@frozen(kw_only=False)
class MatchedPath:
    """What is at one path: its operations by method, and the values in it."""

    operations: Mapping[str, ApiOperation]
    template: str
    values: tuple[str, ...]

    @property
    def allowed_methods(self) -> str:
        """For the header of that name."""
        return ", ".join(sorted({*self.operations, "OPTIONS", *(("HEAD",) if self.has_head else ())}))

    @property
    def has_head(self) -> bool:
        """What goes on for as long as the client likes has no end to ask about."""
        reading = self.operations.get("GET")
        return reading is not None and reading.media == "application/json"

    def get_parameters(self, operation: ApiOperation) -> dict[str, str]:
        """The values by the operation's own names for them."""
        names = (part[1:-1] for part in _split_template(operation.path) if _is_parameter(part))
        return dict(zip(names, self.values, strict=True))


class OperationPaths:
    """All operations, by what their paths look like."""

    def __init__(self, operations: Iterable[ApiOperation]) -> None:
        self._shapes: dict[tuple[str | None, ...], dict[str, ApiOperation]] = {}
        for operation in operations:
            shape = tuple(None if _is_parameter(part) else part for part in _split_template(operation.path))
            here = self._shapes.setdefault(shape, {})
            if operation.method in here:
                message = f"{operation.method} {operation.path} is there twice"
                raise ValueError(message)
            here[operation.method] = operation

    def find(self, parts: tuple[str, ...]) -> MatchedPath | None:
        """What is there; a part that is written out goes before one that may be anything."""
        best: tuple[tuple[bool, ...], tuple[str | None, ...]] | None = None
        for shape in self._shapes:
            if _matches_template(shape, parts):
                rank = tuple(part is not None for part in shape)
                best = max(best, (rank, shape), key=lambda one: one[0]) if best else (rank, shape)
        if best is None:
            return None
        operations = self._shapes[best[1]]
        values = tuple(value for part, value in zip(best[1], parts, strict=True) if part is None)
        return MatchedPath(operations, next(iter(operations.values())).path, values)


def split_path(scope: AsgiScope) -> tuple[str, ...]:
    """The decoded parts of a request's path. Raises `Fault` for what is not text."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    path = raw.partition(b"?")[0]
    try:
        parts = tuple(unquote_to_bytes(part).decode() for part in path.split(b"/")[1:])
    except UnicodeDecodeError:
        raise HttpError(400, "The path is not valid UTF-8.") from None
    if any("\0" in part or len(part) > MAX_PART_LENGTH for part in parts):
        raise HttpError(404, "There is nothing at this address.")
    return parts


def _split_template(template: str) -> tuple[str, ...]:
    return tuple(template.split("/")[1:])


def _is_parameter(part: str) -> bool:
    return part.startswith("{") and part.endswith("}")


def _matches_template(shape: tuple[str | None, ...], parts: tuple[str, ...]) -> bool:
    return len(shape) == len(parts) and all(
        bool(part) if wanted is None else wanted == part for wanted, part in zip(shape, parts, strict=True)
    )
