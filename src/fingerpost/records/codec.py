"""Lossless conversion of records to JSON and back.

Only this module of the package imports pydantic. Records are plain dataclasses, which are cheap to import and
create.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

R = TypeVar("R")


@cache
def _get_adapter(record_type: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(record_type)


def to_json(record: object) -> bytes:
    """Return the record as JSON bytes."""
    return _get_adapter(type(record)).dump_json(record)


def to_plain(record: object) -> Any:
    """Return the record as plain dicts, lists and scalars."""
    return _get_adapter(type(record)).dump_python(record, mode="json")


def from_plain(record_type: type[R], value: object) -> R:
    """Build a record from plain values. Raises `ValueError` if they are invalid."""
    return _get_adapter(record_type).validate_python(value)


def from_json(record_type: type[R], data: bytes | str) -> R:
    """Build a record from JSON bytes. Raises `ValueError` if they are invalid."""
    return _get_adapter(record_type).validate_json(data)
