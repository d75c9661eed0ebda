"""`fingerpost completion SHELL`: the script a shell loads to complete our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


def print_completion(*, shell: str) -> None:
    """Print the completion script for SHELL."""
    script = get_completion_class(shell)
    assert script is not None
    complete = script(
        click.get_current_context().find_root().command, {}, "fingerpost", "_FINGERPOST_COMPLETE"
    )
    # Not complete.source(): it first runs bash to ask its version, which a pipe does not need.
    click.echo(complete.source_template % complete.source_vars())
