"""The folder we work in, and its boundary: nothing here reaches beyond it without a person's grant."""

from fingerpost.builtin.workspace.ground.ground import Ground, OutsideAccess
from fingerpost.builtin.workspace.ground.names import shown_name
from fingerpost.builtin.workspace.ground.place import Place

__all__ = ["Ground", "OutsideAccess", "Place", "shown_name"]
