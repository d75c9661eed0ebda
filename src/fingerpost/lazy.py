"""Packages whose names are loaded when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def build_lookup(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package. `names` are the public names of each module, with
    spaces.
    """
    modules = {name: module for module, listed in names.items() for name in listed.split()}

    def load(name: str) -> object:
        if (module := modules.get(name)) is None:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message)
        found = getattr(import_module(f"{package}.{module}"), name)
        setattr(sys.modules[package], name, found)
        return found

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return load, list_names
