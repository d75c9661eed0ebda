"""The folder we work in, and its boundary: nothing here reaches beyond it without a person's grant."""

from fingerpost.builtin.workspace.ground.ground import OutsideAccess, RootFolder
from fingerpost.builtin.workspace.ground.names import format_name
from fingerpost.builtin.workspace.ground.place import PathEntry

__all__ = ["OutsideAccess", "PathEntry", "RootFolder", "format_name"]
