"""All commands: which function runs each, its arguments and options. Their help is in `help.txt`.

Imported for `fingerpost COMMAND --help`: it imports click and nothing heavy. The module with the function is
imported when the command runs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import click

from fingerpost.surfaces.cli.main import HELP, CommandGroup
from fingerpost.surfaces.cli.options import (
    COMMON,
    CONNECTING,
    EFFORT,
    FILE,
    JSON,
    PROFILE,
    SMART_ROUTING,
    STANDALONE,
    argument,
    choice,
    command,
    file_option,
    flag,
    option,
    run_command,
)

KINDS: Final = ("corrections", "outcomes", "preferences", "decisions", "thresholds")
MODES: Final = ("auto", "staged", "single", "simple", "react", "keyless")
CHOICES: Final = ("quick", "thorough", "usual")
KEY_VARIABLE: Final = "FINGERPOST_BUILTIN_KEY"
EFFECTS: Final = ("read", "write", "destroy")
RIGHTS: Final = ("use", "watch", "confirm", "approve", "manage", "administer")
QUOTA_SUBJECTS: Final = ("user", "key", "profile")
ROLES: Final = ("user", "approver", "operator", "admin")

POSITIVE: Final = click.IntRange(min=1)
NETWORK_PORT: Final = click.IntRange(0, 65535)
WORKER_COUNT: Final = click.IntRange(1, 256)
GATEWAY_MODE: Final = choice(["auto", "route", "all"])
OUT: Final = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
BACKUP: Final = click.Path(path_type=Path, dir_okay=False)
DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)

ANSWER_MODE: Final = option("--mode", "How to answer [default: choose.mode].", type=choice(MODES))
CONVERSATION: Final = option("--conversation", "Continue this conversation, or start it.", metavar="ID")
ONE_SERVER: Final = option("--server", "Use only this server's tools (and connect only it).", metavar="NAME")
OTHER_PROFILE: Final = option("--profile", "Offer this profile of the settings instead.", metavar="NAME")
PENDING_ID: Final = (
    argument("pending_id", required=False, metavar="[NUMBER|ID]"),
    flag("--last", "The newest of your waiting calls."),
)
QUERIES: Final = file_option("--queries queries_file", "The set's queries.", required=True)
SEEN: Final = flag("--seen", "Confirms that you have read the exact call (`approvals show ID`).")
TECHNICAL: Final = flag("--technical", "When it fails, also show the technical details.")
TIMEOUT: Final = option(
    "--timeout", "Give up after this long.", type=click.FloatRange(min=0.1), metavar="SECONDS"
)

ENTRY_TARGET: Final = argument("target", nargs=-1, metavar="[URL | -- COMMAND [ARG]...]")
ENTRY_OPTIONS: Final = (
    option("--entry", "The entry as JSON, as a README shows it; - reads stdin.", metavar="JSON"),
    option(
        "--env", "A variable of the program; KEY alone takes yours.", multiple=True, metavar="KEY[=VALUE]"
    ),
    option("--header headers", "Sent with every request.", multiple=True, metavar="NAME=VALUE"),
    option("--cwd", "Where the program runs.", type=DIRECTORY, metavar="FOLDER"),
    option("--transport", "By default http for a URL.", type=choice(["http", "sse"])),
    option("--lifecycle", "When it runs.", type=choice(["on_demand", "at_start", "always"])),
    option("--trust-hints/--no-trust-hints", "Whether its readOnlyHint is believed.", default=None),
    option("--review/--no-review", "Whether its tools wait until you accept them.", default=None),
    option("--enable/--disable", "Whether it is used.", default=None),
)

COMMANDS: Final = {
    "servers": command(
        "catalog:show_servers",
        *CONNECTING,
        flag("--connect", "Connect every server, also those whose tools are known."),
        flag("--watch", "Stay connected and show every change until Ctrl-C."),
    ),
    "servers add": command(
        "catalog:add_server",
        argument("name", required=False),
        ENTRY_TARGET,
        *ENTRY_OPTIONS,
        flag("--no-check", "Save without connecting first."),
        *COMMON,
        people_only=True,
    ),
    "servers edit": command(
        "catalog:edit_server",
        argument("name"),
        ENTRY_TARGET,
        *ENTRY_OPTIONS,
        option("--unset", "Remove a field, such as cwd or env.TOKEN.", multiple=True, metavar="FIELD"),
        flag("--no-check", "Save without connecting first."),
        *COMMON,
        people_only=True,
    ),
    "servers remove": command("catalog:remove_server", argument("name"), *COMMON, people_only=True),
    "servers login": command("catalog:sign_in", argument("name"), *COMMON),
    "servers logout": command(
        "catalog:sign_out",
        argument("name"),
        option("--user", "The sign-in of this user, where each user has one.", metavar="NAME"),
        *COMMON,
        people_only=True,
    ),
    "tools": command(
        "catalog:list_tools",
        argument("query", nargs=-1),
        option("--server", "Only this server's tools (and connect only it).", metavar="NAME"),
        *CONNECTING,
    ),
    "tool": command("catalog:show_tool", argument("name"), *CONNECTING),
    "route": command(
        "route:show_route",
        argument("request", nargs=-1, required=True),
        flag("--explain", "Also show every other candidate with the reason, and hidden tools."),
        option(
            "--max-tools",
            "Offer at most this many [default: narrow.max_tools].",
            type=click.IntRange(min=1, max=64),
            metavar="N",
        ),
        flag("--ask-model", "Let the model choose servers first, as smart routing does for a request."),
        *EFFORT,
        option("--server", "Look only at this server's tools (and connect only it).", metavar="NAME"),
        PROFILE,
        *SMART_ROUTING,
        *CONNECTING,
    ),
    "why": command(
        "route:show_reasons",
        argument("tool"),
        argument("request", nargs=-1, required=True),
        *SMART_ROUTING,
        *CONNECTING,
    ),
    "learned": command(
        "learning:show_learned",
        argument("what", nargs=-1, type=choice(KINDS)),
        flag("--reset", "Forget WHAT, or everything that was learned."),
        option("--person", "Only what was learned about this person.", metavar="NAME"),
        *CONNECTING,
    ),
    "insight": command(
        "trace:show_figures",
        option("--hours", "How far back.", type=click.FloatRange(0, 24 * 366, min_open=True), default=24.0),
        *COMMON,
    ),
    "compare": command(
        "comparison:compare_routing",
        argument("request", nargs=-1),
        file_option(
            "--requests requests_file",
            'A file with one request per line, as text or as {"query"}; shows the mean.',
        ),
        flag("--recorded", "Show recorded figures of choosing servers; asks nothing."),
        flag(
            "--self-test",
            "Make the call that chooses servers fail on purpose; exit code 1 unless all tools stay.",
        ),
        *SMART_ROUTING,
        *CONNECTING,
    ),
    "ask": command(
        "ask:answer_request",
        argument("request", nargs=-1),
        option("--resume", "Continue the request whose call waited for approval as ID.", metavar="ID"),
        ANSWER_MODE,
        *EFFORT,
        flag("--explain", "After the answer, show why: tools, choice, calls, time, tokens."),
        flag("--yes", "Approve, as yourself, every call that needs approval."),
        flag("--dry-run", "Choose, and show what would be called, without calling it."),
        TIMEOUT,
        option("--max-turns", "Most tool calls in a row.", type=click.IntRange(1, 100), metavar="N"),
        ONE_SERVER,
        CONVERSATION,
        TECHNICAL,
        PROFILE,
        *SMART_ROUTING,
        *CONNECTING,
    ),
    "chat": command(
        "chat:start_chat", CONVERSATION, ANSWER_MODE, ONE_SERVER, PROFILE, *SMART_ROUTING, *CONNECTING
    ),
    "call": command(
        "calls:call_tool",
        argument("name", required=False),
        argument("arguments", nargs=-1, metavar="[KEY=VALUE]..."),
        option("--args whole", "All arguments as one JSON object.", metavar="JSON"),
        flag("--dry-run", "Show what would happen, without doing it."),
        flag("--yes", "Approve the call, as yourself, if it needs approval."),
        option("--resume", "Run a call that waited for approval and was approved.", metavar="ID"),
        TIMEOUT,
        option("--tokens", "Cut the result to this many tokens.", type=click.IntRange(min=50), metavar="N"),
        TECHNICAL,
        flag("--no-fallback", "Use only this tool: no fallback when it fails."),
        option(
            "--idempotency-key",
            "Run the call once under this key: made again, it returns the first result.",
            metavar="KEY",
        ),
        option("--conversation", "The conversation that an approval may apply to.", metavar="ID"),
        PROFILE,
        *COMMON,
        STANDALONE,
    ),
    "prefer": command(
        "learning:set_preference", argument("what", required=False, type=choice(CHOICES)), *COMMON
    ),
    "feedback": command(
        "learning:record_feedback",
        argument("words", nargs=-1, metavar="[PACKET] good|bad"),
        flag("--last", "About your latest request."),
        option("--should-have-used", "The tool that would have been right.", metavar="TOOL"),
        option("--tool", "The tool you mean, where several were used.", metavar="TOOL"),
        option("--comment", "The reason, stored with the feedback.", default="", metavar="TEXT"),
        *CONNECTING,
    ),
    "trace": command(
        "trace:show_trace",
        argument("given", required=False, metavar="[ID]"),
        flag("--last", "The latest request or call [default without an ID]."),
        *COMMON,
    ),
    "result": command(
        "calls:show_result",
        argument("given", required=False, metavar="[HANDLE]"),
        flag("--last", "The latest result that was cut [default without a handle]."),
        option("--page", "Which page.", type=POSITIVE, default=1),
        option("--tokens", "Tokens per page.", type=click.IntRange(min=50), default=2000),
        option("--part", "Which part (a picture, a file) --out writes; else the first.", type=POSITIVE),
        file_option("--out --output output", "Write a stored picture, sound or file here instead."),
        *COMMON,
    ),
    "breakers": command("trace:show_breakers", *COMMON),
    "status": command("status:show_status", *COMMON),
    "logs": command(
        "status:show_logs",
        argument("server", required=False),
        option("-n --lines lines", "How many of the newest lines.", type=POSITIVE, default=50, metavar="N"),
        flag("-f --follow", "Also show new lines, until Ctrl-C."),
        *COMMON,
    ),
    "serve": command(
        "services:serve_gateway",
        *COMMON,
        *SMART_ROUTING,
        option("--host", "Where to listen [default: 127.0.0.1, only this machine].", metavar="ADDRESS"),
        option("--port", "0 takes any free port [default: 8642].", type=NETWORK_PORT),
        option("--workers", "Processes that share the port [default: 1].", type=WORKER_COUNT, metavar="N"),
        option("--mode", "What /mcp offers [default: auto].", type=GATEWAY_MODE),
        option("--profile", "The profile for clients that name none.", metavar="NAME"),
        flag("--open open_browser", "Show the console in a browser, signed in."),
    ),
    "console": command(
        "services:print_console_link",
        *COMMON,
        flag("--open open_browser", "Show it in a browser."),
        people_only=True,
    ),
    "stdio": command(
        "services:serve_stdio_client",
        *COMMON,
        *SMART_ROUTING,
        option("--mode", "What is offered [default: auto].", type=GATEWAY_MODE),
        OTHER_PROFILE,
    ),
    "discord": command("services:run_discord_bot", *COMMON),
    "install": command(
        "client_install:install_client",
        argument("client", required=False),
        option("--mode", "What is offered.", type=GATEWAY_MODE, default="auto", show_default=False),
        OTHER_PROFILE,
        option("--stdio way", "The client starts Fingerpost itself [default].", flag_value="stdio"),
        option("--http way", "The client connects to `fingerpost serve`.", flag_value="http"),
        option("--name", "What the client calls it.", default="fingerpost"),
        flag("--replace", "Move the client's other servers into Fingerpost's servers file."),
        flag("--project", "Write the file of this folder, not your own."),
        flag("--yes", "Write without asking."),
        flag("--dry-run", "Show what would change, and change nothing."),
        flag("--undo", "Remove the entry, and move servers back."),
        file_option("--servers"),
        file_option("--config"),
    ),
    "builtin": command(
        "builtin:run_builtin",
        argument("name", required=False),
        flag(
            "--reviewed",
            "workspace: confirms that you reviewed what was written there; commands may run its files again.",
        ),
        flag("--http", "Serve it at an address instead, for callers with the key."),
        option("--host", "Where to listen.", default="127.0.0.1", metavar="ADDRESS"),
        option("--port", "0 takes any free port.", type=NETWORK_PORT, default=8643),
        file_option("--key-file", f"The key is its first line [default: the variable {KEY_VARIABLE}]."),
        *COMMON,
    ),
    "profiles": command("config:list_profiles", *COMMON),
    "profiles list": command("config:list_profiles", *COMMON),
    "profiles show": command(
        "config:show_profile",
        argument("name"),
        flag("--prompt", "Also print the system prompt it makes."),
        *CONNECTING,
    ),
    "profiles check": command("config:check_profiles", *COMMON),
    "profiles add": command(
        "config:add_profiles", argument("names", nargs=-1, metavar="[EXAMPLE]..."), *COMMON
    ),
    "keys": command("keys:list_keys", *COMMON),
    "keys add": command(
        "keys:add_key",
        argument("name"),
        option("--server only_servers", "Only this server, `*` allowed.", multiple=True, metavar="NAME"),
        option("--tool tools", "Only this tool, `server/tool`, `*` allowed.", multiple=True, metavar="KEY"),
        option("--effect effects", "Only tools that do this.", multiple=True, type=choice(EFFECTS)),
        option("--profile profiles", "Only the endpoint of this profile.", multiple=True, metavar="NAME"),
        option("--may rights", "What its holder may do [default: use].", multiple=True, type=choice(RIGHTS)),
        option("--role roles", "A set of rights for its holder.", multiple=True, type=choice(ROLES)),
        option("--user", "Its owner, who may have several keys [default: NAME].", default="", metavar="USER"),
        option("--expires", "After 30d, 12h or 45m, or on a date such as 2027-01-31.", metavar="WHEN"),
        flag("--same-holder", "An earlier key of this name had the same holder."),
        *COMMON,
        people_only=True,
    ),
    "keys list": command("keys:list_keys", *COMMON),
    "keys revoke": command("keys:revoke_key", argument("name"), *COMMON, people_only=True),
    "users": command("keys:list_users", *COMMON),
    "users list": command("keys:list_users", *COMMON),
    "users set": command(
        "keys:set_user",
        argument("name"),
        option("--role roles", "A set of rights for its tokens.", multiple=True, type=choice(ROLES)),
        flag("--disabled", "Refuse all of its keys and tokens."),
        *COMMON,
        people_only=True,
    ),
    "users remove": command("keys:remove_user", argument("name"), *COMMON, people_only=True),
    "quotas": command("keys:list_quotas", *COMMON),
    "quotas list": command("keys:list_quotas", *COMMON),
    "quotas set": command(
        "keys:set_quota",
        option("--of", "What is counted together.", type=choice(QUOTA_SUBJECTS), default="user"),
        option("--match", "Its name, `*` allowed.", default="*", metavar="NAME"),
        option("--requests-per-minute", "MCP requests, completions, questions.", type=click.IntRange(1)),
        option("--calls-per-minute", "Calls of tools.", type=click.IntRange(1)),
        option("--running", "Calls and requests at once.", type=click.IntRange(1)),
        option("--tokens-per-day", "Of language models.", type=click.IntRange(1)),
        option("--cost-per-day", "In your models' currency.", type=click.FloatRange(0, min_open=True)),
        *COMMON,
        people_only=True,
    ),
    "quotas remove": command(
        "keys:remove_quota", argument("quota_id", metavar="ID"), *COMMON, people_only=True
    ),
    "eval": command(""),
    "eval predict": command(
        "evals:write_set_predictions",
        file_option("--tools tools_file", "The set's tools.", required=True),
        QUERIES,
        option("--out", "Where predictions go; - is stdout.", type=OUT, required=True, metavar="FILE"),
        option("--top", "How many tools a ranking holds.", type=click.IntRange(1, 200), default=20),
        option(
            "--scope",
            "Route over all tools, or a query that has candidates among those only.",
            type=choice(["catalog", "candidates"]),
            default="catalog",
        ),
        option("--limit", "Only the first N queries.", type=POSITIVE, metavar="N"),
        flag("--lexical", "By words alone, without the encoder."),
        option(
            "--select/--no-select",
            "Have the configured model select a tool for each query [default: when there is one].",
            default=None,
        ),
        option(
            "--at-once",
            "Parallel questions to the model.",
            type=click.IntRange(1, 64),
            default=4,
            metavar="N",
        ),
        file_option("--config", "The settings file, as for every command."),
    ),
    "eval report": command(
        "evals:report_predictions",
        argument("predictions", nargs=-1, required=True, type=FILE),
        QUERIES,
        file_option("--tools tools_file", "The set's tools, to check labels by."),
        option("--least", "Exit code 1 when the figure is below.", multiple=True, metavar="NAME=VALUE"),
        option("--most", "Exit code 1 when the figure is above.", multiple=True, metavar="NAME=VALUE"),
        option("--keep", "Keep the figures in the store; the console and the API show them.", metavar="NAME"),
        JSON,
    ),
    "eval tune": command(
        "evals:tune_weights",
        file_option("--tools tools_file", "The set's tools.", required=True),
        QUERIES,
        option("--limit", "Only the first N queries.", type=POSITIVE, metavar="N"),
        file_option("--config", "The settings file, as for every command."),
        JSON,
    ),
    "eval own": command(
        "evals:make_own_set",
        option("--out", "Where the two files go.", type=DIRECTORY, metavar="FOLDER"),
        flag("--compare", "Say whether learning from feedback would help."),
        option("--limit", "Newest choices.", type=POSITIVE, default=2000),
        *CONNECTING,
    ),
    "eval shadow": command(
        "evals:compare_settings",
        file_option(
            "--requests requests_file",
            'One request per line, as text or as {"query"}; by default those recorded.',
        ),
        option("--set changes", "A setting of the new configuration.", multiple=True, metavar="NAME=VALUE"),
        *CONNECTING,
    ),
    "doctor": command("doctor:run_checks", *COMMON, STANDALONE),
    "import": command(
        "client_import:import_servers",
        file_option("--write target", "Write to this mcpServers file [default: the servers file in use]."),
        flag("--yes", "Write without asking."),
        flag("--dry-run", "Show what would change, and change nothing."),
        JSON,
    ),
    "config": command(""),
    "config path": command("store:show_paths", *COMMON),
    "config check": command("config:check_settings", *COMMON),
    "config show": command(
        "config:show_settings",
        argument("section", required=False),
        flag("--changed", "Only what is not a default."),
        *COMMON,
    ),
    "completion": command("main:print_completion", argument("shell", type=choice(["bash", "zsh", "fish"]))),
    "approvals": command("approvals:list_approvals", *COMMON),
    "approvals show": command("approvals:show_approval", *PENDING_ID, *COMMON),
    "approvals approve": command(
        "approvals:approve_call",
        *PENDING_ID,
        flag(
            "--for-conversation",
            "Also allow its caller's further calls on the same target in this conversation, for a while.",
        ),
        flag(
            "--only-reads",
            "Also say that its tool only reads, so that it is not asked about again (see `pins reads`).",
        ),
        SEEN,
        *COMMON,
        STANDALONE,
        people_only=True,
    ),
    "approvals reject": command(
        "approvals:reject_call",
        *PENDING_ID,
        option("--reason", "The reason; it is sent to the model.", metavar="TEXT"),
        *COMMON,
        people_only=True,
    ),
    "approvals edit": command(
        "approvals:edit_call",
        argument("words", nargs=-1, required=True, metavar="[NUMBER|ID] KEY=VALUE..."),
        flag("--last", "The newest of your waiting calls."),
        SEEN,
        *COMMON,
        STANDALONE,
        people_only=True,
    ),
    "scan": command(
        "pins:scan_definitions",
        argument("name", required=False, metavar="[SERVER|TOOL]"),
        flag("--sarif", "Print SARIF, the format that code scanners exchange."),
        *COMMON,
        STANDALONE,
    ),
    "pins": command("pins:list_pins", *COMMON, STANDALONE),
    "pins diff": command("pins:show_changes", argument("tool"), *COMMON, STANDALONE),
    "pins accept": command(
        "pins:accept_changes",
        argument("tool"),
        flag("--yes", "Do not ask; for scripts that reviewed the change before."),
        *COMMON,
        STANDALONE,
        people_only=True,
    ),
    "pins reads": command(
        "pins:mark_read_only",
        argument("tool"),
        flag("--undo", "Undo it: calls of the tool need approval again."),
        flag("--yes", "Do not ask; for scripts that reviewed the tool before."),
        *COMMON,
        STANDALONE,
        people_only=True,
    ),
    "pins forget": command("pins:forget_pin", argument("tool"), *COMMON, people_only=True),
    "audit": command(""),
    "audit verify": command(
        "store:verify_audit",
        option(
            "--anchor anchors", "Compare with this anchor elsewhere, too.", multiple=True, metavar="FILE|URL"
        ),
        *COMMON,
    ),
    "audit show": command(
        "store:show_audit",
        option("--limit", "How many of the newest rows.", type=POSITIVE, default=50),
        *COMMON,
    ),
    "store": command(""),
    "store status": command("store:show_status", *COMMON),
    "store prune": command(
        "store:prune_store",
        flag("--dry-run", "Only show what would be removed."),
        flag("--yes", "Remove it without asking."),
        flag("--compact", "Also rewrite an SQLite file without free space; other processes wait meanwhile."),
        *COMMON,
    ),
    "store export": command(
        "store:export_store",
        argument("file", metavar="FILE|-"),
        option("--only", "Only this part.", type=choice(["journal", "audit"])),
        *COMMON,
    ),
    "store backup": command("store:back_up_store", argument("file", type=BACKUP), *COMMON),
    "store rekey": command(
        "store:rekey_store",
        file_option("--old-secret-file", "The former secret, if the settings have the new one already."),
        flag("--yes", "Replace it without asking."),
        *COMMON,
        people_only=True,
    ),
}


def build_command(path: str) -> click.Command:
    """Build the command with this path, such as `keys add`, from its entry in `COMMANDS` and its help."""
    spec, shown = COMMANDS[path], HELP[path]
    has_subcommands = any(name.startswith(f"{path} ") for name in COMMANDS)
    build = (
        partial(CommandGroup, invoke_without_command=bool(spec.target)) if has_subcommands else click.Command
    )
    return build(
        name=path,
        callback=partial(run_command, spec) if spec.target else None,
        params=[make() for make in spec.params],
        help=shown.text,
        epilog=shown.epilog,
    )
