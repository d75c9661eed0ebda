"""Which servers of our own there are. None is imported before it is made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final, cast

from fingerpost.builtin.kit import BuiltinServer
from fingerpost.builtin.premises import BuiltinHost
from fingerpost.errors import ConfigError

SERVER_TITLES: Final[Mapping[str, str]] = {
    "workspace": "Files and commands of one folder",
    "knowledge": "A folder of notes, searchable by words and meaning",
    "memory": "What a model should remember, by person and conversation; and a place to think",
    "collaboration": "Questions and approvals put to the person",
    "specialists": "Subagents, several experts at once, and assets",
    "directives": "Directives for a VR or AR client to act on",
}
SERVER_NAMES: Final = tuple(SERVER_TITLES)


def make_server(name: str, host: BuiltinHost) -> BuiltinServer:
    """One of them, not open yet."""
    if name not in SERVER_TITLES:
        message = f"there is no server {name!r:.60} of our own"
        raise ConfigError(message, hint=f"There are {', '.join(SERVER_NAMES)}.")
    module = import_module(f"fingerpost.builtin.{name}")
    return cast("BuiltinServer", module.make(host))
