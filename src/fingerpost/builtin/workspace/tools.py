"""The eight tools of the workspace, as records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio.to_thread

from fingerpost.builtin.kit import BuiltinTool, ToolCaller, ToolRefused, ToolReply
from fingerpost.builtin.workspace import schemas, wording
from fingerpost.builtin.workspace.commands.sandbox import describe_sandbox
from fingerpost.builtin.workspace.commands.tests import find_test_command
from fingerpost.builtin.workspace.commands.tool import Terminal
from fingerpost.builtin.workspace.files import reading, writing
from fingerpost.builtin.workspace.files.operations import (
    OPERATIONS,
    FileContext,
    FileOperation,
    attribute_to_paths,
    check_feasible,
    check_paths,
    get_grant_reason,
    note_writes,
)
from fingerpost.builtin.workspace.given import ToolArguments
from fingerpost.builtin.workspace.search.grep import TextQuery, search_text
from fingerpost.frozen import frozen
from fingerpost.records import Effect, JsonObject

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
    check: Callable[[ToolArguments], None] | None = None  # of one that starts a command


def build_file_operations(context: FileContext) -> BuiltinTool:
    def check(arguments: JsonObject) -> None:
        given = ToolArguments(str(arguments.get("operation")), arguments)
        operation = OPERATIONS[given.operation]
        given.check(needs=operation.needs, takes=operation.takes)
        check_paths(context.workspace, given)

    async def feasible(arguments: JsonObject) -> None:
        given = ToolArguments(str(arguments.get("operation")), arguments)
        await anyio.to_thread.run_sync(check_feasible, context, given)

    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        given = ToolArguments(str(arguments.get("operation")), arguments)
        return ToolReply(
            await _run_operation(_build_call_context(context, caller), OPERATIONS[given.operation], given)
        )

    effects = {name: get_file_effect(context, each.effect) for name, each in OPERATIONS.items()}
    return BuiltinTool(
        name=FILES_TOOL,
        title="Files",
        description=wording.format_boundary(
            wording.FILES_WORDING.description, outside=context.workspace.settings.outside
        ),
        run=run,
        check=check,
        feasible=feasible,
        needs_grant=lambda arguments: _get_grant_reason(context, str(arguments.get("operation")), arguments),
        effect=Effect.DESTROY,
        properties={
            "operation": schemas.build_enum_schema(OPERATIONS, wording.FILES_WORDING.operation),
            **schemas.FILE_PARAMETERS,
        },
        required=("operation",),
        knowledge={
            **wording.FILES_WORDING.knowledge,
            "operations": effects,
            "effect": get_file_effect(context, Effect.DESTROY),
            "typical_ms": 20,
            "timeout_ms": 60_000,
        },
    )


def _build_call_context(context: FileContext, caller: ToolCaller) -> FileContext:
    """What a call works with: beyond the folder only where a person granted this very call."""
    return replace(context, work=context.workspace.with_outside_access()) if caller.granted else context


async def _get_grant_reason(context: FileContext, operation: str, arguments: JsonObject) -> str:
    if not context.workspace.settings.outside:
        return ""
    return await anyio.to_thread.run_sync(
        get_grant_reason, context.workspace, ToolArguments(operation, arguments)
    )


async def _run_operation(context: FileContext, operation: FileOperation, args: ToolArguments) -> str:
    act = context.workspace.switches.get_write_mode(dry_run=args.get_flag("dry_run"))
    if operation.effect is not Effect.READ and not act.is_dry_run:
        await anyio.to_thread.run_sync(note_writes, context.workspace, args)
    # A reader that nobody waits for any more may end in its own time; a writer is seen to its end.
    with attribute_to_paths(args):
        return await anyio.to_thread.run_sync(
            operation.action, context, args, act, abandon_on_cancel=operation.effect is Effect.READ
        )


def get_file_effect(context: FileContext, effect: Effect) -> Effect:
    """What holds with the present switch: a dry run only reads."""
    return effect if context.workspace.switches.write else Effect.READ


def get_terminal_effect(context: FileContext, effect: Effect) -> Effect:
    return effect if context.workspace.switches.execute else Effect.READ


def build_terminal_operations(context: FileContext, terminal: Terminal) -> BuiltinTool:
    run_takes = ("folder", "seconds", "dry_run")
    doings: Mapping[str, _CommandOperation] = {
        "run_command": _CommandOperation(
            Effect.WRITE,
            terminal.run_command,
            ("command",),
            (*run_takes, "isBackground"),
            terminal.check_arguments,
        ),
        "run_background": _CommandOperation(
            Effect.WRITE, terminal.run_background, ("command",), run_takes, terminal.check_arguments
        ),
        ELEVATED_OPERATION: _CommandOperation(
            Effect.DESTROY,
            partial(terminal.run_command, is_elevated=True),
            ("command",),
            run_takes,
            partial(terminal.check_arguments, is_elevated=True),
        ),
        "get_output": _CommandOperation(Effect.READ, terminal.get_output, ("job",), ("offset",)),
        "stop": _CommandOperation(Effect.WRITE, terminal.stop_job, ("job",)),
        "list": _CommandOperation(Effect.READ, terminal.list_jobs),
    }

    def check(arguments: JsonObject) -> None:
        given = ToolArguments(str(arguments.get("operation")), arguments)
        doing = doings[given.operation]
        given.check(needs=doing.needs, takes=doing.takes)
        if doing.check is not None:
            doing.check(given)

    async def feasible(arguments: JsonObject) -> None:
        given = ToolArguments(str(arguments.get("operation")), arguments)
        if doings[given.operation].check is not None:
            await terminal.check_feasible(given)

    async def needs_grant(arguments: JsonObject) -> str:
        given = ToolArguments(str(arguments.get("operation")), arguments)
        return "" if doings[given.operation].check is None else await terminal.get_grant_reason(given)

    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        given = ToolArguments(str(arguments.get("operation")), arguments)
        return await doings[given.operation].action(given, caller)

    return BuiltinTool(
        name=TERMINAL_TOOL,
        title="Commands",
        description=f"{wording.TERMINAL_WORDING.description} {describe_sandbox(context.workspace.settings)}",
        run=run,
        check=check,
        feasible=feasible,
        needs_grant=needs_grant,
        effect=Effect.DESTROY,
        properties={
            "operation": schemas.build_enum_schema(doings, wording.TERMINAL_WORDING.operation),
            **schemas.TERMINAL_PARAMETERS,
        },
        required=("operation",),
        open_world=True,
        knowledge={
            **wording.TERMINAL_WORDING.knowledge,
            "operations": {name: get_terminal_effect(context, each.effect) for name, each in doings.items()},
            "effect": get_terminal_effect(context, Effect.DESTROY),
            **_get_command_timeouts(context),
        },
    )


def build_ai_read(context: FileContext) -> BuiltinTool:
    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        given, work = ToolArguments(READ, arguments), _build_call_context(context, caller).workspace
        with attribute_to_paths(given):
            if not (given.has("start_line") or given.has("end_line")):
                return ToolReply(await _run_in_thread(reading.read_file, work, given.get_text("path")))
            lines = given.get_number("start_line", 1), given.get_number("end_line", 0)
            return ToolReply(await _run_in_thread(reading.read_range, work, given.get_text("path"), *lines))

    async def feasible(arguments: JsonObject) -> None:
        await anyio.to_thread.run_sync(check_feasible, context, ToolArguments("read_file", arguments))

    return BuiltinTool(
        name=READ,
        title="Read a file",
        description=wording.READ_WORDING.description,
        run=run,
        check=lambda arguments: check_paths(context.workspace, ToolArguments(READ, arguments)),
        feasible=feasible,
        needs_grant=lambda arguments: _get_grant_reason(context, "read_file", arguments),
        effect=Effect.READ,
        properties={
            "path": schemas.PATH_SCHEMA,
            "start_line": schemas.START_LINE_SCHEMA,
            "end_line": schemas.END_LINE_SCHEMA,
        },
        required=("path",),
        knowledge={**wording.READ_WORDING.knowledge, "typical_ms": 5, "timeout_ms": 60_000},
    )


def build_ai_write(context: FileContext) -> BuiltinTool:
    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        given = ToolArguments(WRITE, arguments)
        act = context.workspace.switches.get_write_mode(dry_run=given.get_flag("dry_run"))
        work = _build_call_context(context, caller).workspace
        if not act.is_dry_run:
            await anyio.to_thread.run_sync(note_writes, work, given)
        do = partial(writing.write_file, work, given.get_text("path"), given.get_text("content"), act)
        with attribute_to_paths(given):
            return ToolReply(await anyio.to_thread.run_sync(do))

    async def feasible(arguments: JsonObject) -> None:
        await anyio.to_thread.run_sync(check_feasible, context, ToolArguments("write_file", arguments))

    return BuiltinTool(
        name=WRITE,
        title="Write a file",
        description=wording.WRITE_WORDING.description,
        run=run,
        check=lambda arguments: check_paths(context.workspace, ToolArguments(WRITE, arguments)),
        feasible=feasible,
        needs_grant=lambda arguments: _get_grant_reason(context, "write_file", arguments),
        effect=Effect.WRITE,
        properties={
            "path": schemas.PATH_SCHEMA,
            "content": schemas.CONTENT_SCHEMA,
            "dry_run": schemas.DRY_RUN_SCHEMA,
        },
        required=("path", "content"),
        knowledge={
            **wording.WRITE_WORDING.knowledge,
            "effect": get_file_effect(context, Effect.WRITE),
            "typical_ms": 10,
            "timeout_ms": 60_000,
        },
    )


def build_ai_execute(context: FileContext, terminal: Terminal) -> BuiltinTool:
    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        return await terminal.run_command(ToolArguments(EXECUTE, arguments), caller)

    names = ("command", "folder", "seconds", "isBackground", "dry_run")
    return BuiltinTool(
        name=EXECUTE,
        title="Run a command",
        description=f"{wording.EXECUTE_WORDING.description} {describe_sandbox(context.workspace.settings)}",
        run=run,
        needs_grant=lambda arguments: terminal.get_grant_reason(ToolArguments(EXECUTE, arguments)),
        check=lambda arguments: terminal.check_arguments(ToolArguments(EXECUTE, arguments)),
        feasible=lambda arguments: terminal.check_feasible(ToolArguments(EXECUTE, arguments)),
        effect=Effect.DESTROY,
        properties={name: schemas.TERMINAL_PARAMETERS[name] for name in names},
        required=("command",),
        open_world=True,
        knowledge={
            **wording.EXECUTE_WORDING.knowledge,
            "effect": get_terminal_effect(context, Effect.WRITE),
            **_get_command_timeouts(context),
        },
    )


def build_run_tests(context: FileContext, terminal: Terminal) -> BuiltinTool:
    """As a tool of its own for the same reason as `build_search_files`: nobody has to know the command."""

    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        command = await _run_in_thread(find_test_command, context.workspace)
        return await terminal.run_command(
            ToolArguments(TESTS_TOOL, {**arguments, "command": command}), caller
        )

    async def feasible(arguments: JsonObject) -> None:
        await _run_in_thread(find_test_command, context.workspace)

    async def needs_grant(arguments: JsonObject) -> str:
        try:
            command = await _run_in_thread(find_test_command, context.workspace)
        except ToolRefused:
            return ""  # the call says it
        return await terminal.get_grant_reason(ToolArguments(TESTS_TOOL, {**arguments, "command": command}))

    names = ("seconds", "dry_run")
    return BuiltinTool(
        name=TESTS_TOOL,
        title="Run the tests",
        description=f"{wording.TESTS_WORDING.description} {describe_sandbox(context.workspace.settings)}",
        run=run,
        needs_grant=needs_grant,
        feasible=feasible,
        effect=Effect.DESTROY,
        open_world=True,
        properties={name: schemas.TERMINAL_PARAMETERS[name] for name in names},
        knowledge={
            **wording.TESTS_WORDING.knowledge,
            "effect": get_terminal_effect(context, Effect.WRITE),
            **_get_command_timeouts(context),
        },
    )


def build_search_files(context: FileContext) -> BuiltinTool:
    """The one question that is asked most, as a tool of its own: it can be answered without a model."""

    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        given = ToolArguments(SEARCH_TOOL, arguments)
        wanted = TextQuery(query=given.get_text("query"), path=given.get_text("path", "."))
        with attribute_to_paths(given):
            return ToolReply(await _run_in_thread(search_text, context.workspace, wanted))

    return BuiltinTool(
        name=SEARCH_TOOL,
        title="Search the text of files",
        description=wording.SEARCH_WORDING.description,
        run=run,
        check=lambda arguments: check_paths(context.workspace, ToolArguments(SEARCH_TOOL, arguments)),
        effect=Effect.READ,
        properties={
            "query": schemas.build_text_schema("The text to look for", 1000),
            "path": schemas.PATH_SCHEMA,
        },
        required=("query",),
        knowledge={**wording.SEARCH_WORDING.knowledge, "typical_ms": 100, "timeout_ms": 60_000},
    )


def build_embedding_query(context: FileContext) -> BuiltinTool:
    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        given = ToolArguments(QUERY, arguments)
        search = partial(
            context.meaning_index.search_passages, given.get_text("query"), given.get_text("path", ".")
        )
        with attribute_to_paths(given):
            return ToolReply(await _run_in_thread(search, given.get_number("top_k", 5)))

    return BuiltinTool(
        name=QUERY,
        title="Search files by meaning",
        description=wording.QUERY_WORDING.description,
        run=run,
        check=lambda arguments: check_paths(context.workspace, ToolArguments(QUERY, arguments)),
        effect=Effect.READ,
        properties={
            "query": schemas.build_text_schema(
                "What it should be about, in a few words or as a question", 1000
            ),
            "top_k": schemas.build_integer_schema("How many passages", 1, 50),
            "path": schemas.PATH_SCHEMA,
        },
        required=("query",),
        knowledge={**wording.QUERY_WORDING.knowledge, "typical_ms": 200, "timeout_ms": 60_000},
    )


async def _run_in_thread(function: Callable[..., str], *arguments: Any) -> str:
    return await anyio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True)


def _get_command_timeouts(context: FileContext) -> dict[str, Any]:
    """A command ends by its own limit before the call does by ours."""
    limit = context.workspace.settings.command_seconds
    return {"typical_ms": 2000, "timeout_ms": int((limit + 15) * 1000)}
