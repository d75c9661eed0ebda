"""`fingerpost completion SHELL`: the script a shell loads to complete our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    Examples:
      fingerpost completion bash >> ~/.bashrc
      fingerpost completion zsh >> ~/.zshrc
      fingerpost completion fish > ~/.config/fish/completions/fingerpost.fish
    """
    script = get_completion_class(shell)
    assert script is not None
    complete = script(ctx.find_root().command, {}, "fingerpost", "_FINGERPOST_COMPLETE")
    # Not complete.source(): it first runs bash to ask its version, which a pipe does not need.
    click.echo(complete.source_template % complete.source_vars())
