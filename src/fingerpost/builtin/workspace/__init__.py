"""The workspace server: files and commands of one folder."""

from fingerpost.builtin.workspace.server import make

__all__ = ["make"]
