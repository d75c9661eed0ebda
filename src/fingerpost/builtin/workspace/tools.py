"""The tools of the workspace, and the operations of `file_operations`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio.to_thread

from fingerpost.builtin.toolkit import (
    BuiltinTool,
    ToolCaller,
    ToolDefinitions,
    ToolRefused,
    ToolReply,
    attribute_to,
)
from fingerpost.builtin.workspace.context import RunMode, ToolArguments, WorkspaceContext
from fingerpost.builtin.workspace.file_content import (
    append_file,
    create_file,
    describe_path,
    insert_text,
    read_file,
    read_range,
    replace_string,
    replace_strings,
    write_file,
)
from fingerpost.builtin.workspace.file_tree import (
    copy_file,
    delete_path,
    find_files,
    list_folder,
    rename_file,
)
from fingerpost.builtin.workspace.paths import OUTSIDE_TYPE, PROTECTED_TYPE, SENSITIVE_TYPE, format_name
from fingerpost.builtin.workspace.sandbox import describe_sandbox
from fingerpost.builtin.workspace.search import MeaningIndex, search_text
from fingerpost.builtin.workspace.terminal import Terminal, find_test_command
from fingerpost.frozen import frozen
from fingerpost.records import Effect, JsonObject

DEFINITIONS: Final = ToolDefinitions.load(__package__ or "")
_INSIDE_ONLY: Final = "nothing outside of it can be reached."
_WITH_APPROVAL: Final = "a file outside of it needs its whole path, and each call a person's approval."


def format_boundary(text: str, *, outside: bool) -> str:
    """Return the text with the current rule about paths outside the folder."""
    return text.replace(_INSIDE_ONLY, _WITH_APPROVAL) if outside else text


@frozen(kw_only=False)
class FileContext:
    """The workspace and index that operations use."""

    workspace: WorkspaceContext
    meaning_index: MeaningIndex


FileAction = Callable[[FileContext, ToolArguments, RunMode], str]
WorkspaceAction = Callable[[WorkspaceContext, ToolArguments, RunMode], str]


@frozen(kw_only=False)
class FileOperation:
    """One operation of `file_operations`. It blocks, so it runs in a thread."""

    effect: Effect
    action: FileAction
    needs: Sequence[str]
    takes: Sequence[str] = ()


def _build_operation(effect: Effect, action: WorkspaceAction, needs: str, takes: str = "") -> FileOperation:
    """Build an operation that does not use the index. The names of parameters are separated by spaces."""

    def act(context: FileContext, args: ToolArguments, run_mode: RunMode) -> str:
        return action(context.workspace, args, run_mode)

    return FileOperation(effect, act, needs.split(), takes.split())


def _search_passages(context: FileContext, args: ToolArguments, run_mode: RunMode) -> str:
    path, limit = args.get_text("path", "."), args.get_number("limit", 5)
    return context.meaning_index.search_passages(args.get_text("query"), path, limit)


_READ, _WRITE, _DESTROY = Effect.READ, Effect.WRITE, Effect.DESTROY
_GREP_OPTIONS: Final = "path pattern regex match_case context_lines limit include_ignored"

OPERATIONS: Final[Mapping[str, FileOperation]] = {
    "read_file": _build_operation(_READ, read_file, "path"),
    "read_range": _build_operation(_READ, read_range, "path start_line", "end_line"),
    "create_file": _build_operation(_WRITE, create_file, "path", "content dry_run"),
    "write_file": _build_operation(_WRITE, write_file, "path content", "dry_run"),
    "append_file": _build_operation(_WRITE, append_file, "path content", "dry_run"),
    "replace_string": _build_operation(_WRITE, replace_string, "path old_string new_string", "all dry_run"),
    "multi_replace": _build_operation(_WRITE, replace_strings, "edits", "path dry_run"),
    "insert_text": _build_operation(_WRITE, insert_text, "path line content", "dry_run"),
    "rename_file": _build_operation(_WRITE, rename_file, "path new_path", "dry_run"),
    "copy_file": _build_operation(_WRITE, copy_file, "path new_path", "dry_run"),
    "delete": _build_operation(_DESTROY, delete_path, "path", "recursive dry_run"),
    "list_dir": _build_operation(_READ, list_folder, "", "path depth include_ignored limit"),
    "find_files": _build_operation(_READ, find_files, "pattern", "path include_ignored limit"),
    "grep_search": _build_operation(_READ, search_text, "query", _GREP_OPTIONS),
    "semantic_search": FileOperation(_READ, _search_passages, ("query",), ("path", "limit")),
    "file_info": _build_operation(_READ, describe_path, "path"),
}


def _iterate_paths(args: ToolArguments) -> Iterator[tuple[str, str]]:
    """Yield every path of a call with its parameter."""
    for name in ("path", "new_path"):
        if args.has(name):
            yield name, args.get_text(name)
    for number, edit in enumerate(args.get_records("edits")):
        if isinstance(path := edit.get("path"), str):
            yield f"edits.{number}.path", path


def record_writes(workspace: WorkspaceContext, args: ToolArguments) -> None:
    """Record paths before they are written: until a review, running files there needs approval."""
    workspace.unreviewed.record_names(*(path for _, path in _iterate_paths(args)))


# Operations that a person can grant outside the working directory.
_OUTSIDE_OPERATIONS: Final = frozenset(
    {"read_file", "read_range", "file_info", "list_dir", "create_file", "write_file", "append_file",
     "replace_string", "multi_replace", "insert_text", "rename_file", "copy_file", "delete"}
)  # fmt: skip


def find_outside_paths(workspace: WorkspaceContext, args: ToolArguments) -> tuple[str, ...]:
    """Return the absolute paths of a call outside the working directory. Blocks."""
    if not workspace.settings.outside or args.operation not in _OUTSIDE_OPERATIONS:
        return ()
    found = (workspace.root_folder.get_outside_path(path) for _, path in _iterate_paths(args))
    return tuple(path for path in found if path is not None)


def get_grant_reason(workspace: WorkspaceContext, args: ToolArguments) -> str:
    """Return why a person has to grant exactly this call, or an empty text."""
    outside = find_outside_paths(workspace, args)
    if not outside:
        return ""
    does = "reads" if OPERATIONS[args.operation].effect is Effect.READ else "changes"
    return f"it {does} {' and '.join(map(format_name, outside[:3]))}, outside of the working directory"


def check_paths(workspace: WorkspaceContext, args: ToolArguments) -> None:
    """Raise `ToolRefused` for invalid paths or paths outside the working directory, with the parameter."""
    for parameter, path in _iterate_paths(args):
        with attribute_to(parameter):
            workspace.root_folder.check_path(path)


def check_feasible(context: FileContext, args: ToolArguments) -> None:
    """Raise `ToolRefused` if the call would fail now: a change is tried as a dry run, a read looked up."""
    operation = OPERATIONS[args.operation]
    with attribute_to_paths(args), _hide_content():
        # Files outside are accessed only after a person's grant.
        if outside := find_outside_paths(context.workspace, args):
            for path in outside:
                context.workspace.root_folder.check_sensitive(path)
            return
        if operation.effect is not Effect.READ:
            operation.action(context, args, RunMode(is_dry_run=True))
        elif args.has("path"):
            with context.workspace.root_folder.open_entry(args.get_text("path")) as entry:
                entry.require_stat()


@contextmanager
def _hide_content() -> Generator[None]:
    """Remove hints that quote a file's content: reading it may need approval too."""
    try:
        yield
    except ToolRefused as refused:
        if not refused.error_type:
            refused.hint = ""
        raise


@contextmanager
def attribute_to_paths(args: ToolArguments) -> Generator[None]:
    """Mark the parameter of a forbidden path as the argument to correct."""
    try:
        yield
    except ToolRefused as refused:
        if refused.error_type in (OUTSIDE_TYPE, PROTECTED_TYPE, SENSITIVE_TYPE):
            refused.parameter = _find_parameter(args, refused.path)
        raise


def _find_parameter(args: ToolArguments, refused_path: str) -> str:
    named = [
        name
        for name, path in _iterate_paths(args)
        if format_name(path[: len(refused_path)]).strip("/") == refused_path
    ]
    return named[0] if named else next((name for name, _ in _iterate_paths(args)), "path")


FILES_TOOL: Final = "file_operations"
TERMINAL_TOOL: Final = "terminal_operations"
READ, WRITE, EXECUTE, QUERY = "ai.read", "ai.write", "ai.execute", "embedding.query"
SEARCH_TOOL: Final = "search_files"
TESTS_TOOL: Final = "run_tests"
ELEVATED_OPERATION: Final = "run_elevated"

CommandAction = Callable[[ToolArguments, ToolCaller], Awaitable[ToolReply]]


@frozen(kw_only=False)
class _CommandOperation:
    """An operation on commands."""

    effect: Effect
    action: CommandAction
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    check: Callable[[ToolArguments], None] | None = None  # for operations that start a command


def build_tools(context: FileContext, terminal: Terminal) -> tuple[BuiltinTool, ...]:
    """Build all tools of the workspace."""
    return (
        _build_file_operations(context),
        _build_terminal_operations(context, terminal),
        _build_file_tool(
            context,
            READ,
            lambda given: "read_range" if given.has("start_line") or given.has("end_line") else "read_file",
        ),
        _build_file_tool(context, WRITE, lambda _: "write_file"),
        DEFINITIONS.build_tool(
            EXECUTE,
            lambda arguments, caller: terminal.run_command(ToolArguments(EXECUTE, arguments), caller),
            Effect.DESTROY,
            description=_describe_commands(context, EXECUTE),
            get_grant_reason=lambda arguments: terminal.get_grant_reason(ToolArguments(EXECUTE, arguments)),
            check=lambda arguments: terminal.check_arguments(ToolArguments(EXECUTE, arguments)),
            check_feasibility=lambda arguments: terminal.check_feasible(ToolArguments(EXECUTE, arguments)),
            knowledge={
                "effect": get_terminal_effect(context, Effect.WRITE),
                **_get_command_timeouts(context),
            },
        ),
        _build_run_tests(context, terminal),
        _build_search_tool(context, SEARCH_TOOL, "grep_search"),
        _build_search_tool(context, QUERY, "semantic_search"),
    )


def _get_operation(arguments: JsonObject) -> ToolArguments:
    return ToolArguments(str(arguments.get("operation")), arguments)


def _build_file_operations(context: FileContext) -> BuiltinTool:
    def check(arguments: JsonObject) -> None:
        given = _get_operation(arguments)
        operation = OPERATIONS[given.operation]
        given.check(needs=operation.needs, takes=operation.takes)
        check_paths(context.workspace, given)

    outside = context.workspace.settings.outside
    return DEFINITIONS.build_tool(
        FILES_TOOL,
        lambda arguments, caller: _run_operation(context, _get_operation(arguments), caller),
        Effect.DESTROY,
        description=format_boundary(DEFINITIONS.tools[FILES_TOOL]["description"], outside=outside),
        check=check,
        check_feasibility=lambda arguments: _check_feasible(context, _get_operation(arguments)),
        get_grant_reason=lambda arguments: _get_grant_reason(context, _get_operation(arguments)),
        knowledge={
            "operations": {name: get_file_effect(context, each.effect) for name, each in OPERATIONS.items()},
            "effect": get_file_effect(context, Effect.DESTROY),
        },
    )


async def _check_feasible(context: FileContext, args: ToolArguments) -> None:
    await anyio.to_thread.run_sync(check_feasible, context, args)


async def _get_grant_reason(context: FileContext, args: ToolArguments) -> str:
    if not context.workspace.settings.outside:
        return ""
    return await anyio.to_thread.run_sync(get_grant_reason, context.workspace, args)


async def _run_operation(context: FileContext, args: ToolArguments, caller: ToolCaller) -> ToolReply:
    operation = OPERATIONS[args.operation]
    if caller.granted:  # only a granted call may access paths outside the folder
        context = replace(context, workspace=context.workspace.with_outside_access())
    run_mode = context.workspace.switches.get_write_mode(dry_run=args.get_flag("dry_run"))
    if operation.effect is not Effect.READ and not run_mode.is_dry_run:
        await anyio.to_thread.run_sync(record_writes, context.workspace, args)
    # A cancelled read may end in the background; a write is always awaited.
    with attribute_to_paths(args):
        text = await anyio.to_thread.run_sync(
            operation.action, context, args, run_mode, abandon_on_cancel=operation.effect is Effect.READ
        )
    return ToolReply(text)


def get_file_effect(context: FileContext, effect: Effect) -> Effect:
    """Return the effect with the current switch: a dry run only reads."""
    return effect if context.workspace.switches.write else Effect.READ


def get_terminal_effect(context: FileContext, effect: Effect) -> Effect:
    return effect if context.workspace.switches.execute else Effect.READ


def _build_terminal_operations(context: FileContext, terminal: Terminal) -> BuiltinTool:
    run, check_command = terminal.run_command, terminal.check_arguments
    run_elevated, check_elevated = partial(run, is_elevated=True), partial(check_command, is_elevated=True)
    needs, takes = ("command",), ("folder", "seconds", "dry_run")
    operations: Mapping[str, _CommandOperation] = {
        "run_command": _CommandOperation(_WRITE, run, needs, (*takes, "isBackground"), check_command),
        "run_background": _CommandOperation(_WRITE, terminal.run_background, needs, takes, check_command),
        ELEVATED_OPERATION: _CommandOperation(_DESTROY, run_elevated, needs, takes, check_elevated),
        "get_output": _CommandOperation(_READ, terminal.get_output, ("job",), ("offset",)),
        "stop": _CommandOperation(_WRITE, terminal.stop_job, ("job",)),
        "list": _CommandOperation(_READ, terminal.list_jobs),
    }

    def check(arguments: JsonObject) -> None:
        given = _get_operation(arguments)
        operation = operations[given.operation]
        given.check(needs=operation.needs, takes=operation.takes)
        if operation.check is not None:
            operation.check(given)

    async def feasible(arguments: JsonObject) -> None:
        given = _get_operation(arguments)
        if operations[given.operation].check is not None:
            await terminal.check_feasible(given)

    async def needs_grant(arguments: JsonObject) -> str:
        given = _get_operation(arguments)
        return "" if operations[given.operation].check is None else await terminal.get_grant_reason(given)

    async def run_operation(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        given = _get_operation(arguments)
        return await operations[given.operation].action(given, caller)

    return DEFINITIONS.build_tool(
        TERMINAL_TOOL,
        run_operation,
        Effect.DESTROY,
        description=_describe_commands(context, TERMINAL_TOOL),
        check=check,
        check_feasibility=feasible,
        get_grant_reason=needs_grant,
        knowledge={
            "operations": {
                name: get_terminal_effect(context, each.effect) for name, each in operations.items()
            },
            "effect": get_terminal_effect(context, Effect.DESTROY),
            **_get_command_timeouts(context),
        },
    )


def _build_file_tool(
    context: FileContext, name: str, choose_operation: Callable[[ToolArguments], str]
) -> BuiltinTool:
    """Build a separate tool for one operation on files."""

    def get_arguments(arguments: JsonObject) -> ToolArguments:
        return ToolArguments(choose_operation(ToolArguments(name, arguments)), arguments)

    effect = OPERATIONS[get_arguments({}).operation].effect
    return DEFINITIONS.build_tool(
        name,
        lambda arguments, caller: _run_operation(context, get_arguments(arguments), caller),
        effect,
        check=lambda arguments: check_paths(context.workspace, get_arguments(arguments)),
        check_feasibility=lambda arguments: _check_feasible(context, get_arguments(arguments)),
        get_grant_reason=lambda arguments: _get_grant_reason(context, get_arguments(arguments)),
        knowledge={"effect": get_file_effect(context, effect)},
    )


def _build_run_tests(context: FileContext, terminal: Terminal) -> BuiltinTool:
    """Build a separate tool for tests, so that callers need not know the command."""

    async def get_arguments(arguments: JsonObject) -> ToolArguments:
        command = await anyio.to_thread.run_sync(find_test_command, context.workspace, abandon_on_cancel=True)
        return ToolArguments(TESTS_TOOL, {**arguments, "command": command})

    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        return await terminal.run_command(await get_arguments(arguments), caller)

    async def feasible(arguments: JsonObject) -> None:
        await get_arguments(arguments)

    async def needs_grant(arguments: JsonObject) -> str:
        try:
            return await terminal.get_grant_reason(await get_arguments(arguments))
        except ToolRefused:
            return ""  # the call itself reports it

    return DEFINITIONS.build_tool(
        TESTS_TOOL,
        run,
        Effect.DESTROY,
        description=_describe_commands(context, TESTS_TOOL),
        get_grant_reason=needs_grant,
        check_feasibility=feasible,
        knowledge={
            "effect": get_terminal_effect(context, Effect.WRITE), **_get_command_timeouts(context)
        },
    )  # fmt: skip


def _build_search_tool(context: FileContext, name: str, operation: str) -> BuiltinTool:
    """Build a separate tool for a frequent request, which can be answered without a model."""

    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        given = ToolArguments(operation, {**arguments, "limit": arguments.get("top_k")})
        with attribute_to_paths(given):
            action = partial(OPERATIONS[operation].action, context, given, RunMode())
            return ToolReply(await anyio.to_thread.run_sync(action, abandon_on_cancel=True))

    return DEFINITIONS.build_tool(
        name,
        run,
        Effect.READ,
        check=lambda arguments: check_paths(context.workspace, ToolArguments(name, arguments)),
    )


def _describe_commands(context: FileContext, tool: str) -> str:
    return f"{DEFINITIONS.tools[tool]['description']} {describe_sandbox(context.workspace.settings)}"


def _get_command_timeouts(context: FileContext) -> dict[str, Any]:
    """Return timeouts of the tool that exceed the command's own limit, so that the command ends first."""
    limit = context.workspace.settings.command_seconds
    return {"typical_ms": 2000, "timeout_ms": int((limit + 15) * 1000)}
