"""Commands that set Fingerpost up, measure it and decide what is trusted, declared as in `commands`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fingerpost.surfaces.cli.options import (
    FILE,
    common_options,
    people_only,
    run,
    wait_option,
)

OUT = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


DIRECTORY = click.Path(path_type=Path, file_okay=False)


FORMAT = """\b
A set is two files with one JSON object per line:
  tools.jsonl    {"id", "server", "name", "description", "input_schema"}
  queries.jsonl  {"id", "query", "relevant": [tool ids], "needs_tool": true|false}
                 and, where there are some: "relevant_groups": [[ids that do equally well], ...],
                 "candidates": [tool ids], "scope": "candidates"|"world",
                 "history": [{"role", "content"}, ...], "lang"
"""


@click.group(name="eval", epilog=FORMAT)
def eval_() -> None:
    """Measure how well requests find their tools.

    `predict` writes what the router says, `report` judges it, `own` makes a set
    of your own tools and past choices, `shadow` compares two configurations.

    \b
    Examples:
      fingerpost eval own --out mine --servers mcp.json
      fingerpost eval predict --tools mine/tools.jsonl --queries mine/queries.jsonl --out now.jsonl
      fingerpost eval report --queries mine/queries.jsonl now.jsonl --least recall@5=0.8
    """


@eval_.command("predict")
@click.option("--tools", "tools_file", type=FILE, required=True, metavar="FILE", help="The set's tools.")
@click.option(
    "--queries", "queries_file", type=FILE, required=True, metavar="FILE", help="The set's queries."
)
@click.option("--out", type=OUT, required=True, metavar="FILE", help="Where predictions go; - is stdout.")
@click.option(
    "--top",
    type=click.IntRange(1, 200),
    default=20,
    show_default=True,
    help="How many tools a ranking holds.",
)
@click.option(
    "--scope",
    type=click.Choice(["catalog", "candidates"]),
    default="catalog",
    show_default=True,
    help="Route over all tools, or a query that has candidates among those only.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N queries.")
@click.option("--lexical", is_flag=True, help="By words alone, without the encoder.")
@click.option(
    "--select/--no-select",
    default=None,
    help="Have the configured model select a tool for each query [default: when there is one].",
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    metavar="N",
    help="Questions to the model at a time.",
)
@click.option("--config", type=FILE, metavar="FILE", help="The settings file, as for every command.")
def eval_predict(**options: Any) -> Any:
    """Route every query of a set and write one JSON line for each, as soon as it is known.

    A line is {"id", "need": {"verdict", "score"}, "fit", "ranking": [{"tool", "score"}, ...], "ms"}.
    With a model configured (models.lite or models.prime) it is asked which of the offered tools it
    takes, and the line has "selection": {"tool", "arguments", "confidence"}. Stopping it (Ctrl-C)
    loses nothing that was written.

    \b
    Examples:
      fingerpost eval predict --tools tools.jsonl --queries queries.jsonl --out predictions.jsonl
      fingerpost eval predict --tools tools.jsonl --queries queries.jsonl --out - --limit 100 --lexical
    """
    return run("evals:write_set_predictions", **options)


@eval_.command("report")
@click.argument("predictions", nargs=-1, required=True, type=FILE)
@click.option(
    "--queries", "queries_file", type=FILE, required=True, metavar="FILE", help="The set's queries."
)
@click.option("--tools", "tools_file", type=FILE, metavar="FILE", help="The set's tools, to check labels by.")
@click.option("--least", multiple=True, metavar="NAME=VALUE", help="Exit code 1 when the figure is below.")
@click.option("--most", multiple=True, metavar="NAME=VALUE", help="Exit code 1 when the figure is above.")
@click.option(
    "--keep", metavar="NAME", help="Keep the figures in the store; the console and the API show them."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of tables.")
def eval_report(**options: Any) -> Any:
    """Judge one run of predictions, or compare two.

    With two files the second is compared with the first, query by query, with
    95 % intervals; bounds (--least, --most) apply to the last.

    \b
    Examples:
      fingerpost eval report --queries queries.jsonl predictions.jsonl
      fingerpost eval report --queries queries.jsonl before.jsonl after.jsonl
      fingerpost eval report --queries queries.jsonl now.jsonl --least recall@5=0.8 --most ms_p50=10
      fingerpost eval report --queries queries.jsonl now.jsonl --keep "our tools"
    """
    return run("evals:report_predictions", **options)


@eval_.command("own")
@click.option("--out", type=DIRECTORY, metavar="FOLDER", help="Where the two files go.")
@click.option("--compare", is_flag=True, help="Say whether learning from feedback would help.")
@click.option("--limit", type=click.IntRange(min=1), default=2000, show_default=True, help="Newest choices.")
@common_options
@wait_option
def eval_own(**options: Any) -> Any:
    """Make a set of your own tools, and of the requests for which one of them worked.

    Requests are kept as the store holds them: masked and short. Exit code 1
    when there is no such request yet.

    With --compare your own requests are routed with and without what people said of the other ones
    (`flags.learn_from_feedback`), query by query with 95 % intervals. Exit code 1 when that loses
    something, or when there is too little to say.

    \b
    Examples:
      fingerpost eval own --out mine --servers mcp.json
      fingerpost eval own --compare --servers mcp.json
    """
    return run("evals:make_own_set", **options)


@eval_.command("shadow")
@click.option(
    "--requests",
    "requests_file",
    type=FILE,
    metavar="FILE",
    help='One request per line, as text or as {"query"}; by default those recorded.',
)
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="A setting of the new configuration."
)
@common_options
@wait_option
def eval_shadow(**options: Any) -> Any:
    """Route the same requests under your settings and under changed ones, and show what differs.

    Nothing is called. Exit code 1 when a request is offered other tools.

    \b
    Examples:
      fingerpost eval shadow --servers mcp.json --set narrow.max_tools=8
      fingerpost eval shadow --requests requests.txt --set flags.dense_scores=false
    """
    return run("evals:compare_settings", **options)


@click.command()
@common_options
def doctor(**options: Any) -> Any:
    """Say what is wrong with the set-up, in order of what to fix.

    Looks at the configuration, the store, every server, tools that could not be
    taken and tools that wait for review, and mentions what is switched off.
    Exit code 1 when something is broken.

    \b
    Examples:
      fingerpost doctor
      fingerpost doctor --servers mcp.json --json
    """
    return run("doctor:run_checks", **options)


@click.command("import")
@click.option(
    "--write",
    "target",
    type=FILE,
    metavar="FILE",
    help="Write the merged servers to this mcpServers file; what it holds stays.",
)
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of tables.")
def import_(**options: Any) -> Any:
    """Find and merge the configurations of other MCP clients.

    Looks where Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Cline, Roo
    Code, Gemini CLI, Zed and Codex keep their servers. Without --write it only
    shows what it found. Variables stay variables; secrets that are written out
    are kept in the file, masked on the screen, and pointed out.

    \b
    Examples:
      fingerpost import
      fingerpost import --write mcp.json
    """
    return run("client_import:import_servers", **options)


@click.group()
def config() -> None:
    """Check the settings, or show where each value comes from.

    \b
    Examples:
      fingerpost config check
      fingerpost config show smart_routing
    """


@config.command("check")
@common_options
def config_check(**options: Any) -> Any:
    """Explain everything that is wrong with the settings: file, line and fix.

    Also looks at server entries that other commands would leave out with a
    warning. Exit code 1 when something is wrong.

    \b
    Examples:
      fingerpost config check
      fingerpost config check --servers .mcp.json
    """
    return run("config:check_settings", **options)


@config.command("show")
@click.argument("section", required=False)
@click.option("--changed", is_flag=True, help="Only what is not a default.")
@common_options
def config_show(**options: Any) -> Any:
    """Print the effective settings, each with where it comes from. Secrets are masked.

    SECTION limits it to one part, such as smart_routing or servers.

    \b
    Examples:
      fingerpost config show
      fingerpost config show servers --servers mcp.json
      SMART_ROUTING_MAX_TOOLS=12 fingerpost config show smart_routing
    """
    return run("config:show_settings", **options)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(**options: Any) -> Any:
    """Print the completion script for SHELL.

    \b
    Examples:
      fingerpost completion bash >> ~/.bashrc
      fingerpost completion zsh >> ~/.zshrc
      fingerpost completion fish > ~/.config/fish/completions/fingerpost.fish
    """
    return run("main:print_completion", **options)


_seen_option = click.option(
    "--seen", is_flag=True, help="You have read the exact call (`approvals show ID`)."
)


@click.group(invoke_without_command=True)
@common_options
@click.pass_context
def approvals(ctx: click.Context, **options: Any) -> Any:
    """Approve, edit or reject calls that wait for you.

    A call the policy asks about waits until a person decides or its time is
    over. An approval is good for that one exact call, once, for a few minutes.
    The first decision counts. Later ones are answered with it.

    \b
    Examples:
      fingerpost approvals                             what waits, secrets masked
      fingerpost approvals show apr_019a…              exactly what would run
      fingerpost approvals approve apr_019a…           let it run, once
      fingerpost approvals edit apr_019a… path=b.txt   change it, then let it run
      fingerpost approvals reject apr_019a… --reason "use the staging project"
    """
    return None if ctx.invoked_subcommand is not None else run("approvals:list_approvals", **options)


@approvals.command("show")
@click.argument("pending_id", metavar="ID")
@common_options
def approvals_show(**options: Any) -> Any:
    """Show everything about one call that waits, or waited.

    What waits is shown exactly as it would run, also what looks like a secret.

    \b
    Example:
      fingerpost approvals show apr_019a…
    """
    return run("approvals:show_approval", **options)


@approvals.command("approve")
@click.argument("pending_id", metavar="ID")
@click.option(
    "--for-conversation",
    is_flag=True,
    help="Also allow its caller's further calls on the same target in this conversation, for a while.",
)
@click.option(
    "--only-reads",
    is_flag=True,
    help="Also say that its tool only reads, so that it is not asked about again (see `pins reads`).",
)
@_seen_option
@common_options
@people_only
def approvals_approve(**options: Any) -> Any:
    """Let a waiting call run: exactly as it is, once.

    Where the list does not show all of a call, because it is long or a part looks like
    a secret, the exact call is shown first and you are asked; in a script say --seen.

    \b
    Examples:
      fingerpost approvals approve apr_019a…
      fingerpost approvals approve apr_019a… --for-conversation
      fingerpost approvals approve apr_019a… --only-reads
    """
    return run("approvals:approve_call", **options)


@approvals.command("reject")
@click.argument("pending_id", metavar="ID")
@click.option("--reason", metavar="TEXT", help="Why not; the model is told, so that it can do better.")
@common_options
@people_only
def approvals_reject(**options: Any) -> Any:
    """Refuse a waiting call, and say why.

    \b
    Example:
      fingerpost approvals reject apr_019a… --reason "use the staging project"
    """
    return run("approvals:reject_call", **options)


@approvals.command("edit")
@click.argument("pending_id", metavar="ID")
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE...")
@_seen_option
@common_options
@people_only
def approvals_edit(**options: Any) -> Any:
    """Change arguments of a waiting call, then let it run once.

    KEY=VALUE gives text, KEY:=JSON gives JSON; KEY:=null leaves an optional one
    out. The tool's server is asked for its schema, and the arguments must fit it:
    a name that the tool does not know is refused.

    \b
    Examples:
      fingerpost approvals edit apr_019a… path=b.txt
      fingerpost approvals edit apr_019a… limit:=3 comment:=null
    """
    return run("approvals:edit_call", **options)


@click.group(invoke_without_command=True)
@common_options
@click.pass_context
def pins(ctx: click.Context, **options: Any) -> Any:
    """Review tools whose definition changed since it was first seen.

    The first definition seen of every tool is pinned, and what each server
    says of itself. When a server later changes one, or offers a further tool,
    that is hidden from models until a person accepts it.
    Exit code 1 when something waits for review.

    \b
    Examples:
      fingerpost pins                        what is pinned, what changed
      fingerpost pins diff github/get_me     what changed, exactly
      fingerpost pins accept github/get_me   trust the new definition
      fingerpost pins reads web/fetch_page   it only reads: do not ask about it
    """
    return None if ctx.invoked_subcommand is not None else run("pins:list_pins", **options)


@pins.command("diff")
@click.argument("tool")
@common_options
def pins_diff(**options: Any) -> Any:
    """Show what changed in the definition of TOOL since it was pinned.

    TOOL may be the name of a server: then all that waits of it. Exit code 1 when something did.

    \b
    Example:
      fingerpost pins diff github/get_me
    """
    return run("pins:show_changes", **options)


@pins.command("accept")
@click.argument("tool")
@click.option("--yes", is_flag=True, help="Do not ask; for scripts that reviewed the change before.")
@common_options
@people_only
def pins_accept(**options: Any) -> Any:
    """Trust the new definition of TOOL, after showing what changed.

    TOOL may be the name of a server: then all that waits of it, new tools and its own words included.

    \b
    Examples:
      fingerpost pins accept github/get_me
      fingerpost pins accept github
    """
    return run("pins:accept_changes", **options)


@pins.command("reads")
@click.argument("tool")
@click.option("--undo", is_flag=True, help="Take it back: the tool is asked about again.")
@click.option("--yes", is_flag=True, help="Do not ask; for scripts that reviewed the tool before.")
@common_options
@people_only
def pins_reads(**options: Any) -> Any:
    """Say that TOOL only reads, so that it runs without a question.

    It holds for the definition shown, and ends when that changes.

    \b
    Example:
      fingerpost pins reads web/fetch_page
    """
    return run("pins:mark_read_only", **options)


@pins.command("forget")
@click.argument("tool")
@common_options
@people_only
def pins_forget(**options: Any) -> Any:
    """Remove the pin of TOOL (its key); the next definition seen is pinned instead.

    \b
    Example:
      fingerpost pins forget github/get_me
    """
    return run("pins:forget_pin", **options)


@click.group()
def audit() -> None:
    """Verify that the audit trail was not tampered with.

    Every decision about a tool is a row that carries the hash of the row before
    it; the newest hash is also written to a file outside the database.

    \b
    Examples:
      fingerpost audit verify
      fingerpost audit show --json
    """


@audit.command("verify")
@click.option(
    "--anchor", "anchors", multiple=True, metavar="FILE|URL", help="Compare with this anchor elsewhere, too."
)
@common_options
def audit_verify(**options: Any) -> Any:
    """Check the whole chain. Exit code 1 when a row was changed, removed or inserted.

    \b
    Examples:
      fingerpost audit verify --json
      fingerpost audit verify --anchor /var/log/audit.log
      fingerpost audit verify --anchor https://anchors.example/fingerpost
    """
    return run("audit:verify_audit", **options)


@audit.command("show")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="How many of the newest rows.",
)
@common_options
def audit_show(**options: Any) -> Any:
    """Show the newest rows of the trail.

    \b
    Example:
      fingerpost audit show --limit 200
    """
    return run("audit:show_audit", **options)
