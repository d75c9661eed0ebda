"""The folder we work in, and its boundary: nothing here reaches beyond it without a person's grant."""

from fingerpost.builtin.workspace.ground.ground import Beyond, Ground
from fingerpost.builtin.workspace.ground.names import shown_name
from fingerpost.builtin.workspace.ground.place import Place

__all__ = ["Beyond", "Ground", "Place", "shown_name"]
