"""`fingerpost ask`: one request, answered."""

from __future__ import annotations

from typing import Any, Final

import click

from fingerpost.surfaces.cli.options import (
    effort_options,
    house_options,
    profile_option,
    smart_routing_options,
    wait_option,
)

MODES: Final = ("auto", "staged", "single", "simple", "react", "keyless")


@click.command()
@click.argument("request", nargs=-1)
@click.option("--resume", metavar="ID", help="Go on with a request whose call waited for approval as ID.")
@click.option("--mode", type=click.Choice(MODES), help="How to answer [default: choose.mode].")
@effort_options
@click.option(
    "--explain", is_flag=True, help="After the answer, show why: tools, choice, calls, time, tokens."
)
@click.option("--yes", is_flag=True, help="Approve as yourself whatever the policy asks about.")
@click.option("--dry-run", is_flag=True, help="Choose, and show what would be called, without calling it.")
@click.option("--timeout", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Give up after this long.")
@click.option("--max-turns", type=click.IntRange(1, 100), metavar="N", help="Most tool calls in a row.")
@click.option("--server", metavar="NAME", help="Use only this server's tools (and connect only it).")
@click.option("--conversation", metavar="ID", help="Go on with this conversation, or begin it.")
@click.option("--technical", is_flag=True, help="When it fails, also show the technical details.")
@profile_option
@smart_routing_options
@house_options
@wait_option
def ask(request: tuple[str, ...], **options: Any) -> int:
    """Answer REQUEST, with a tool where it needs one. With - it is read from stdin.

    The answer is written to stdout as it comes, everything else to stderr. What
    writes or destroys asks first: at a terminal you are asked, elsewhere the
    request waits. Without any model Fingerpost answers with what the tools say.

    Exit code 0 when it was answered, 1 when not (no tool suits, everything failed,
    a limit was reached), 4 when a person must approve a call, 5 when a person must
    answer a question first.

    \b
    Examples:
      fingerpost ask "what time is it in Tokyo?" --servers mcp.json
      fingerpost ask --explain "which of my notes mention Dana?"
      git diff | fingerpost ask -
      fingerpost approvals approve apr_019a… && fingerpost ask --resume apr_019a…
    """
    from fingerpost.surfaces.cli.asking import Wish, answer
    from fingerpost.surfaces.cli.house import Asked, read_settings

    text = _text(request, options["resume"])
    loaded = read_settings(Asked(options["config"], options["servers"], options["as_json"]))
    return answer(loaded, Wish.of(text, options))


def _text(request: tuple[str, ...], resume: str | None) -> str:
    if resume is not None:
        if request:
            message = "--resume goes on with a request that was made; give no other"
            raise click.UsageError(message)
        return ""
    if request == ("-",):
        from fingerpost.surfaces.cli.person import read_request

        text = read_request()
    else:
        text = " ".join(request).strip()
    if not text:
        message = "there is no request; write it behind the command, or - to read it from stdin"
        raise click.UsageError(message)
    return text
