"""The folder we work in, and its boundary: nothing here ever reaches beyond it."""

from fingerpost.builtin.workspace.ground.ground import Ground
from fingerpost.builtin.workspace.ground.names import shown_name
from fingerpost.builtin.workspace.ground.place import Place

__all__ = ["Ground", "Place", "shown_name"]
