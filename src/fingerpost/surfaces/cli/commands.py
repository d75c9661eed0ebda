"""Commands that look at tools, ask for answers and call tools.

This module, `server_commands` and `setup_commands` declare all commands: options, arguments and help.
They import click and nothing heavy, because `fingerpost COMMAND --help` loads one of them. `run` imports
the implementing module when the command runs.
"""

from __future__ import annotations

from typing import Any, Final

import click

from fingerpost.surfaces.cli.options import (
    FILE,
    common_options,
    effort_options,
    profile_option,
    run,
    smart_routing_options,
    wait_option,
)


@click.group(invoke_without_command=True)
@common_options
@wait_option
@click.option("--watch", is_flag=True, help="Stay connected and show every change until Ctrl-C.")
@click.pass_context
def servers(ctx: click.Context, **options: Any) -> Any:
    """Connect every configured server and show how it is doing.

    Servers connect side by side; one that is dead or slow delays no other.
    Exit code 1 when not a single enabled server came up.

    \b
    Examples:
      fingerpost servers --servers mcp.json
      fingerpost servers --watch
      fingerpost servers --json | jq '.[] | select(.state != "ready")'
    """
    return None if ctx.invoked_subcommand is not None else run("catalog:show_servers", **options)


@servers.command("login")
@click.argument("name")
@common_options
def servers_login(**options: Any) -> Any:
    """Sign in to the server NAME with OAuth; the browser opens, the token is kept in the store.

    \b
    Example:
      fingerpost servers login linear --servers mcp.json
    """
    return run("catalog:sign_in", **options)


@click.command()
@click.argument("query", nargs=-1)
@click.option("--server", metavar="NAME", help="Only this server's tools (and connect only it).")
@common_options
@wait_option
def tools(**options: Any) -> Any:
    """List the tools of all servers, or those that match the words of QUERY.

    Exit code 1 when nothing matches.

    \b
    Examples:
      fingerpost tools
      fingerpost tools read file
      fingerpost tools --server github --json
    """
    return run("catalog:list_tools", **options)


@click.command()
@click.argument("name")
@common_options
@wait_option
def tool(**options: Any) -> Any:
    """Show everything known about the tool NAME, and where each piece comes from.

    NAME is its key (server/tool), the name models see, or the bare name when only one server has it.

    \b
    Examples:
      fingerpost tool time/get_current_time
      fingerpost tool get_current_time --json
    """
    return run("catalog:show_tool", **options)


@click.command()
@click.argument("request", nargs=-1, required=True)
@click.option("--explain", is_flag=True, help="Also show every candidate, why it lost, and what was hidden.")
@click.option(
    "--max-tools",
    type=click.IntRange(min=1, max=64),
    metavar="N",
    help="Offer at most this many [default: narrow.max_tools].",
)
@click.option(
    "--ask-model",
    is_flag=True,
    help="Let the model choose servers first, as smart routing does for a request.",
)
@effort_options
@click.option("--server", metavar="NAME", help="Look only at this server's tools (and connect only it).")
@profile_option
@smart_routing_options
@common_options
@wait_option
def route(**options: Any) -> Any:
    """Show which tools would be offered to a model for REQUEST, and why.

    No tool is called, and no model is asked unless --ask-model is given. Exit code 1 when no tool is offered.

    \b
    Examples:
      fingerpost route "what is the weather in Oslo tomorrow"
      fingerpost route --explain "close the stale issues and tell Dana"
      fingerpost route --json --max-tools 2 "תמצא לי את הקובץ של הדוח"
    """
    return run("route:show_route", **options)


@click.command()
@click.argument("tool")
@click.argument("request", nargs=-1, required=True)
@smart_routing_options
@common_options
@wait_option
def why(**options: Any) -> Any:
    """Say why TOOL is or is not offered for REQUEST.

    TOOL is its key (server/tool), the name models see, or the bare name when only one server has it.
    Exit code 0 when it is offered, 1 when not.

    \b
    Examples:
      fingerpost why github/search_issues "find the bug about login"
      fingerpost why delete_file "clean up my downloads" --json
    """
    return run("route:show_reasons", **options)


KINDS = ("corrections", "outcomes", "preferences", "decisions", "thresholds")


@click.command("learned")
@click.argument("what", nargs=-1, type=click.Choice(KINDS))
@click.option("--reset", is_flag=True, help="Forget WHAT, or everything that was learned.")
@click.option("--person", metavar="NAME", help="Only what this person said and is used to.")
@common_options
@wait_option
def show_learned(**options: Any) -> Any:
    """Show what was learned from use and feedback, which of it counts, and why.

    With --reset it is forgotten: corrections (what people said), outcomes (what worked for which
    request), preferences (what one person is used to), decisions (servers remembered for a request) or
    thresholds (settings that moved).

    \b
    Examples:
      fingerpost learned
      fingerpost learned --reset corrections
      fingerpost learned --reset preferences --person dana
    """
    return run("learning:show_learned", **options)


MAX_HOURS = 24 * 366


@click.command()
@click.option(
    "--hours", type=click.FloatRange(0, MAX_HOURS, min_open=True), default=24.0, show_default=True,
    help="How far back.",
)  # fmt: skip
@common_options
def insight(**options: Any) -> Any:
    """Show figures of the last hours: requests, failures, fallbacks, tokens, time, and rollouts.

    \b
    Examples:
      fingerpost insight
      fingerpost insight --hours 168 --json
    """
    return run("trace:show_figures", **options)


@click.command()
@click.argument("request", nargs=-1)
@click.option(
    "--requests",
    "requests_file",
    type=FILE,
    metavar="FILE",
    help='Many at once: one request per line, as text or as {"query"}; shows the mean.',
)
@click.option(
    "--recorded",
    is_flag=True,
    help="Show how choosing servers has done so far, by the journal; asks nothing.",
)
@click.option(
    "--self-test",
    is_flag=True,
    help="Make the call that chooses servers fail on purpose; exit code 1 unless all tools stay.",
)
@smart_routing_options
@common_options
@wait_option
def compare(**options: Any) -> Any:
    """Show what routing saves for REQUEST: tools, tokens of definitions, and time.

    With a model configured (models.lite, else models.prime) it is also asked once
    each way, with all definitions and with those that are offered. No tool is called.
    Exit code 1 when there are no tools.

    \b
    Examples:
      fingerpost compare "put the dentist into my calendar for Tuesday" --servers mcp.json
      fingerpost compare --json "which of my pull requests wait for a review"
      fingerpost compare --requests requests.txt
      fingerpost compare --self-test
    """
    return run("comparison:compare_routing", **options)


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
@common_options
@wait_option
def ask(**options: Any) -> Any:
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
    return run("ask:answer_request", **options)


@click.command()
@click.option("--conversation", metavar="ID", help="Go on with this conversation, or begin it.")
@click.option("--mode", type=click.Choice(MODES), help="How to answer [default: choose.mode].")
@click.option("--server", metavar="NAME", help="Use only this server's tools (and connect only it).")
@profile_option
@smart_routing_options
@common_options
@wait_option
def chat(**options: Any) -> Any:
    """Talk with your tools: each line is a request, and what was said before is remembered.

    Ctrl-C stops an answer, Ctrl-D ends the conversation. /help lists what else
    there is: /tools, /why, /trace, /mode, /model, /approve, /new, /save. Lines may
    come from a pipe, too; then a call that needs you waits for a line with /approve.

    \b
    Examples:
      fingerpost chat --servers mcp.json
      fingerpost chat --conversation garden
    """
    return run("chat:start_chat", **options)


@click.command()
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--args", "whole", metavar="JSON", help="All arguments as one JSON object.")
@click.option("--dry-run", is_flag=True, help="Show what would happen, without doing it.")
@click.option("--yes", is_flag=True, help="Approve as yourself if the policy asks.")
@click.option("--timeout", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Give up after this long.")
@click.option(
    "--tokens", type=click.IntRange(min=50), metavar="N", help="Cut the result to this many tokens."
)
@click.option("--technical", is_flag=True, help="When it fails, also show the technical details.")
@click.option("--no-fallback", is_flag=True, help="This tool alone: no other answers when it fails.")
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="Run the call once under this key: made again, it returns the first result.",
)
@click.option("--conversation", metavar="ID", help="The conversation a grant may be bound to.")
@profile_option
@common_options
def call(**options: Any) -> Any:
    """Call the tool NAME.

    KEY=VALUE gives text, which is turned into what the tool's schema wants;
    KEY:=JSON gives JSON. Wrong names and types are put right where that is
    certain, and every repair is shown. What writes or destroys asks first.

    NAME is `tool` or `server/tool`. Either way, when a tool that only reads
    fails or finds nothing, the next tool of its hierarchy answers (see
    `fingerpost tool NAME`), and that is said; --no-fallback means this tool alone.

    Exit code 0 when the tool succeeded, 1 when not, 4 when a person must approve it.

    \b
    Examples:
      fingerpost call time/get_current_time timezone=Europe/Oslo
      fingerpost call files/write_file path=a.txt content=hello --dry-run
      fingerpost call search --args '{"query": "opening hours", "limit": 3}' --json
    """
    return run("calls:call_tool", **options)


CHOICES: Final = ("quick", "thorough", "usual")


@click.command()
@click.argument("what", required=False, type=click.Choice(CHOICES))
@common_options
def prefer(**options: Any) -> Any:
    """Say whether you want quick or thorough answers, or see what you said. `usual` takes it back.

    Quick answers come from fast tools and one decision of a model; thorough ones prefer research tools,
    look at more tools and are reviewed. A request can say otherwise: --quick, --thorough.

    \b
    Examples:
      fingerpost prefer quick
      fingerpost prefer
      fingerpost prefer usual
    """
    return run("learning:set_preference", **options)


@click.command()
@click.argument("words", nargs=-1, metavar="[PACKET] good|bad")
@click.option("--last", is_flag=True, help="About your latest request.")
@click.option("--should-have-used", metavar="TOOL", help="The tool that would have been right.")
@click.option("--tool", metavar="TOOL", help="The tool you mean, where several were used.")
@click.option("--comment", default="", metavar="TEXT", help="The reason, stored with the feedback.")
@common_options
@wait_option
def feedback(**options: Any) -> Any:
    """Say whether a request got the right tool.

    PACKET is the id under which `fingerpost ask --explain`, `fingerpost trace` and the console show the
    request. A later word of yours about the same request takes the place of the first. It is kept in any
    case; `flags.learn_from_feedback` lets it count.

    \b
    Examples:
      fingerpost feedback --last good
      fingerpost feedback pkt_01a1dd… bad --should-have-used calendar/list_events
    """
    return run("learning:record_feedback", **options)


@click.command()
@click.argument("identity", metavar="ID")
@common_options
def trace(**options: Any) -> Any:
    """Show the events of one call (cal_…) or packet (pkt_…): repairs, rulings, waits, attempts, cuts.

    Subagents are drawn inside of the packet that began them.

    \b
    Examples:
      fingerpost trace cal_01a1dd…
      fingerpost trace cal_01a1dd… --json
    """
    return run("trace:show_trace", **options)


@click.command()
@common_options
def breakers(**options: Any) -> Any:
    """Show the circuit breaker of every server that ever had one move, newest state first.

    A breaker belongs to a running Fingerpost; this reads what they recorded. It
    heals by itself. To close one at once use the console of `fingerpost serve`,
    under Servers, or POST /api/servers/NAME/breaker/reset.

    \b
    Example:
      fingerpost breakers --json
    """
    return run("trace:show_breakers", **options)


@click.command()
@click.argument("handle")
@click.option("--page", type=click.IntRange(min=1), default=1, show_default=True, help="Which page.")
@click.option(
    "--tokens", type=click.IntRange(min=50), default=2000, show_default=True, help="Tokens to a page."
)
@click.option(
    "--part", type=click.IntRange(min=1), help="Which part (a picture, a file) --out writes; else the first."
)
@click.option(
    "--out",
    "--output",
    "output",
    type=FILE,
    metavar="FILE",
    help="Write what was kept aside (a picture, a sound) to this file instead.",
)
@common_options
def result(**options: Any) -> Any:
    """Show the full result of a call whose digest left something out.

    \b
    Examples:
      fingerpost result res_kqzvbnwtyhdca
      fingerpost result res_kqzvbnwtyhdca --page 2
      fingerpost result res_kqzvbnwtyhdca --out picture.png
    """
    return run("calls:show_result", **options)
