"""Records to JSON and back, without loss.

The only module of this package that loads pydantic: records themselves stay
plain dataclasses, cheap to import and to create.
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
    """The record as JSON bytes."""
    return _get_adapter(type(record)).dump_json(record)


def to_plain(record: object) -> Any:
    """The record as plain dicts, lists and scalars, ready to be printed as JSON."""
    return _get_adapter(type(record)).dump_python(record, mode="json")


def from_plain(record_type: type[R], value: object) -> R:
    """The record these plain values were made from. Raises `ValueError` when they are not one."""
    return _get_adapter(record_type).validate_python(value)


def from_json(record_type: type[R], data: bytes | str) -> R:
    """The record these JSON bytes were made from. Raises `ValueError` when they are not one."""
    return _get_adapter(record_type).validate_json(data)
