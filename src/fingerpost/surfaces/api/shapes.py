"""The types of an operation as pydantic reads and writes them. The description is made from the same."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass as checked_dataclass


@cache
def build_input_adapter(shape: type[Any]) -> TypeAdapter[Any]:
    """What a caller sends: a dataclass of which nothing is unknown, at any depth."""
    strict_about_names = ConfigDict(extra="forbid")
    return TypeAdapter(checked_dataclass(shape, config=strict_about_names, kw_only=True))


@cache
def build_output_adapter(shape: Any) -> TypeAdapter[Any]:
    """What we answer with."""
    return TypeAdapter(shape)
