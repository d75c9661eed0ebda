"""Our own server for the files and commands of one folder.

`ground` holds the boundary of the folder, `text` what is in a file, `files` and `search` the operations on
them, `commands` what runs. `tools` makes tools of it, `wording` says what they are.
"""

from fingerpost.builtin.workspace.server import make

__all__ = ["make"]
