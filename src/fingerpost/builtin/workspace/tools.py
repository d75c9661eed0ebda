"""The eight tools of the workspace, as records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio.to_thread

from fingerpost.builtin.kit import Caller, OwnTool, Reply, ToolRefused
from fingerpost.builtin.workspace import schemas, wording
from fingerpost.builtin.workspace.commands.sandbox import describe
from fingerpost.builtin.workspace.commands.tests import test_command
from fingerpost.builtin.workspace.commands.tool import Terminal
from fingerpost.builtin.workspace.files import reading, writing
from fingerpost.builtin.workspace.files.operations import (
    OPERATIONS,
    Desk,
    Operation,
    attribute_to_paths,
    check_paths,
    note_writes,
    reason_for_grant,
    try_out,
)
from fingerpost.builtin.workspace.given import Given
from fingerpost.builtin.workspace.search.grep import Wanted, grep_search
from fingerpost.frozen import frozen
from fingerpost.records import Effect, JsonObject

FILES: Final = "file_operations"
TERMINAL: Final = "terminal_operations"
READ, WRITE, EXECUTE, QUERY = "ai.read", "ai.write", "ai.execute", "embedding.query"
SEARCH: Final = "search_files"
TESTS: Final = "run_tests"
RAISED: Final = "run_elevated"

Act = Callable[[Given, Caller], Awaitable[Reply]]


@frozen(kw_only=False)
class _Doing:
    """An operation on commands."""

    effect: Effect
    do: Act
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    check: Callable[[Given], None] | None = None  # of one that starts a command


def file_operations(desk: Desk) -> OwnTool:
    def check(arguments: JsonObject) -> None:
        given = Given(str(arguments.get("operation")), arguments)
        operation = OPERATIONS[given.what]
        given.check(needs=operation.needs, takes=operation.takes)
        check_paths(desk.work, given)

    async def feasible(arguments: JsonObject) -> None:
        given = Given(str(arguments.get("operation")), arguments)
        await anyio.to_thread.run_sync(try_out, desk, given)

    async def run(arguments: JsonObject, caller: Caller) -> Reply:
        given = Given(str(arguments.get("operation")), arguments)
        return Reply(await _in_thread(_desk_for(desk, caller), OPERATIONS[given.what], given))

    effects = {name: desk_effect(desk, each.effect) for name, each in OPERATIONS.items()}
    return OwnTool(
        name=FILES,
        title="Files",
        description=wording.reach(wording.FILES.description, outside=desk.work.settings.outside),
        run=run,
        check=check,
        feasible=feasible,
        needs_grant=lambda arguments: _reason_for_grant(desk, str(arguments.get("operation")), arguments),
        effect=Effect.DESTROY,
        properties={
            "operation": schemas.choice(OPERATIONS, wording.FILES.operation),
            **schemas.FILE_PARAMETERS,
        },
        required=("operation",),
        knowledge={
            **wording.FILES.knowledge,
            "operations": effects,
            "effect": desk_effect(desk, Effect.DESTROY),
            "typical_ms": 20,
            "timeout_ms": 60_000,
        },
    )


def _desk_for(desk: Desk, caller: Caller) -> Desk:
    """What a call works with: beyond the folder only where a person granted this very call."""
    return replace(desk, work=desk.work.reaching()) if caller.granted else desk


async def _reason_for_grant(desk: Desk, operation: str, arguments: JsonObject) -> str:
    if not desk.work.settings.outside:
        return ""
    return await anyio.to_thread.run_sync(reason_for_grant, desk.work, Given(operation, arguments))


async def _in_thread(desk: Desk, operation: Operation, given: Given) -> str:
    act = desk.work.switches.writing(wished_dry=given.flag("dry_run"))
    if operation.effect is not Effect.READ and not act.dry:
        await anyio.to_thread.run_sync(note_writes, desk.work, given)
    # A reader that nobody waits for any more may end in its own time; a writer is seen to its end.
    with attribute_to_paths(given):
        return await anyio.to_thread.run_sync(
            operation.do, desk, given, act, abandon_on_cancel=operation.effect is Effect.READ
        )


def desk_effect(desk: Desk, effect: Effect) -> Effect:
    """What holds with the present switch: a dry run only reads."""
    return effect if desk.work.switches.write else Effect.READ


def terminal_effect(desk: Desk, effect: Effect) -> Effect:
    return effect if desk.work.switches.execute else Effect.READ


def terminal_operations(desk: Desk, terminal: Terminal) -> OwnTool:
    run_takes = ("folder", "seconds", "dry_run")
    doings: Mapping[str, _Doing] = {
        "run_command": _Doing(
            Effect.WRITE, terminal.run_command, ("command",), (*run_takes, "isBackground"), terminal.check
        ),
        "run_background": _Doing(
            Effect.WRITE, terminal.run_background, ("command",), run_takes, terminal.check
        ),
        RAISED: _Doing(
            Effect.DESTROY,
            partial(terminal.run_command, raised=True),
            ("command",),
            run_takes,
            partial(terminal.check, raised=True),
        ),
        "get_output": _Doing(Effect.READ, terminal.get_output, ("job",), ("offset",)),
        "stop": _Doing(Effect.WRITE, terminal.stop, ("job",)),
        "list": _Doing(Effect.READ, terminal.list),
    }

    def check(arguments: JsonObject) -> None:
        given = Given(str(arguments.get("operation")), arguments)
        doing = doings[given.what]
        given.check(needs=doing.needs, takes=doing.takes)
        if doing.check is not None:
            doing.check(given)

    async def feasible(arguments: JsonObject) -> None:
        given = Given(str(arguments.get("operation")), arguments)
        if doings[given.what].check is not None:
            await terminal.feasible(given)

    async def needs_grant(arguments: JsonObject) -> str:
        given = Given(str(arguments.get("operation")), arguments)
        return "" if doings[given.what].check is None else await terminal.reason_for_grant(given)

    async def run(arguments: JsonObject, caller: Caller) -> Reply:
        given = Given(str(arguments.get("operation")), arguments)
        return await doings[given.what].do(given, caller)

    return OwnTool(
        name=TERMINAL,
        title="Commands",
        description=f"{wording.TERMINAL.description} {describe(desk.work.settings)}",
        run=run,
        check=check,
        feasible=feasible,
        needs_grant=needs_grant,
        effect=Effect.DESTROY,
        properties={
            "operation": schemas.choice(doings, wording.TERMINAL.operation),
            **schemas.TERMINAL_PARAMETERS,
        },
        required=("operation",),
        open_world=True,
        knowledge={
            **wording.TERMINAL.knowledge,
            "operations": {name: terminal_effect(desk, each.effect) for name, each in doings.items()},
            "effect": terminal_effect(desk, Effect.DESTROY),
            **_command_times(desk),
        },
    )


def ai_read(desk: Desk) -> OwnTool:
    async def run(arguments: JsonObject, caller: Caller) -> Reply:
        given, work = Given(READ, arguments), _desk_for(desk, caller).work
        with attribute_to_paths(given):
            if not (given.has("start_line") or given.has("end_line")):
                return Reply(await _thread(reading.read_file, work, given.text("path")))
            lines = given.number("start_line", 1), given.number("end_line", 0)
            return Reply(await _thread(reading.read_range, work, given.text("path"), *lines))

    async def feasible(arguments: JsonObject) -> None:
        await anyio.to_thread.run_sync(try_out, desk, Given("read_file", arguments))

    return OwnTool(
        name=READ,
        title="Read a file",
        description=wording.READ.description,
        run=run,
        check=lambda arguments: check_paths(desk.work, Given(READ, arguments)),
        feasible=feasible,
        needs_grant=lambda arguments: _reason_for_grant(desk, "read_file", arguments),
        effect=Effect.READ,
        properties={
            "path": schemas.PATH,
            "start_line": schemas.START_LINE,
            "end_line": schemas.END_LINE,
        },
        required=("path",),
        knowledge={**wording.READ.knowledge, "typical_ms": 5, "timeout_ms": 60_000},
    )


def ai_write(desk: Desk) -> OwnTool:
    async def run(arguments: JsonObject, caller: Caller) -> Reply:
        given = Given(WRITE, arguments)
        act = desk.work.switches.writing(wished_dry=given.flag("dry_run"))
        work = _desk_for(desk, caller).work
        if not act.dry:
            await anyio.to_thread.run_sync(note_writes, work, given)
        do = partial(writing.write_file, work, given.text("path"), given.text("content"), act)
        with attribute_to_paths(given):
            return Reply(await anyio.to_thread.run_sync(do))

    async def feasible(arguments: JsonObject) -> None:
        await anyio.to_thread.run_sync(try_out, desk, Given("write_file", arguments))

    return OwnTool(
        name=WRITE,
        title="Write a file",
        description=wording.WRITE.description,
        run=run,
        check=lambda arguments: check_paths(desk.work, Given(WRITE, arguments)),
        feasible=feasible,
        needs_grant=lambda arguments: _reason_for_grant(desk, "write_file", arguments),
        effect=Effect.WRITE,
        properties={"path": schemas.PATH, "content": schemas.CONTENT, "dry_run": schemas.DRY_RUN},
        required=("path", "content"),
        knowledge={
            **wording.WRITE.knowledge,
            "effect": desk_effect(desk, Effect.WRITE),
            "typical_ms": 10,
            "timeout_ms": 60_000,
        },
    )


def ai_execute(desk: Desk, terminal: Terminal) -> OwnTool:
    async def run(arguments: JsonObject, caller: Caller) -> Reply:
        return await terminal.run_command(Given(EXECUTE, arguments), caller)

    names = ("command", "folder", "seconds", "isBackground", "dry_run")
    return OwnTool(
        name=EXECUTE,
        title="Run a command",
        description=f"{wording.EXECUTE.description} {describe(desk.work.settings)}",
        run=run,
        needs_grant=lambda arguments: terminal.reason_for_grant(Given(EXECUTE, arguments)),
        check=lambda arguments: terminal.check(Given(EXECUTE, arguments)),
        feasible=lambda arguments: terminal.feasible(Given(EXECUTE, arguments)),
        effect=Effect.DESTROY,
        properties={name: schemas.TERMINAL_PARAMETERS[name] for name in names},
        required=("command",),
        open_world=True,
        knowledge={
            **wording.EXECUTE.knowledge,
            "effect": terminal_effect(desk, Effect.WRITE),
            **_command_times(desk),
        },
    )


def run_tests(desk: Desk, terminal: Terminal) -> OwnTool:
    """As a tool of its own for the same reason as `search_files`: nobody has to know the command."""

    async def run(arguments: JsonObject, caller: Caller) -> Reply:
        command = await _thread(test_command, desk.work)
        return await terminal.run_command(Given(TESTS, {**arguments, "command": command}), caller)

    async def feasible(arguments: JsonObject) -> None:
        await _thread(test_command, desk.work)

    async def needs_grant(arguments: JsonObject) -> str:
        try:
            command = await _thread(test_command, desk.work)
        except ToolRefused:
            return ""  # the call says it
        return await terminal.reason_for_grant(Given(TESTS, {**arguments, "command": command}))

    names = ("seconds", "dry_run")
    return OwnTool(
        name=TESTS,
        title="Run the tests",
        description=f"{wording.TESTS.description} {describe(desk.work.settings)}",
        run=run,
        needs_grant=needs_grant,
        feasible=feasible,
        effect=Effect.DESTROY,
        open_world=True,
        properties={name: schemas.TERMINAL_PARAMETERS[name] for name in names},
        knowledge={
            **wording.TESTS.knowledge,
            "effect": terminal_effect(desk, Effect.WRITE),
            **_command_times(desk),
        },
    )


def search_files(desk: Desk) -> OwnTool:
    """The one question that is asked most, as a tool of its own: it can be answered without a model."""

    async def run(arguments: JsonObject, caller: Caller) -> Reply:
        given = Given(SEARCH, arguments)
        wanted = Wanted(query=given.text("query"), path=given.text("path", "."))
        with attribute_to_paths(given):
            return Reply(await _thread(grep_search, desk.work, wanted))

    return OwnTool(
        name=SEARCH,
        title="Search the text of files",
        description=wording.SEARCH.description,
        run=run,
        check=lambda arguments: check_paths(desk.work, Given(SEARCH, arguments)),
        effect=Effect.READ,
        properties={"query": schemas.words("The text to look for", 1000), "path": schemas.PATH},
        required=("query",),
        knowledge={**wording.SEARCH.knowledge, "typical_ms": 100, "timeout_ms": 60_000},
    )


def embedding_query(desk: Desk) -> OwnTool:
    async def run(arguments: JsonObject, caller: Caller) -> Reply:
        given = Given(QUERY, arguments)
        search = partial(desk.meaning.search, given.text("query"), given.text("path", "."))
        with attribute_to_paths(given):
            return Reply(await _thread(search, given.number("top_k", 5)))

    return OwnTool(
        name=QUERY,
        title="Search files by meaning",
        description=wording.QUERY.description,
        run=run,
        check=lambda arguments: check_paths(desk.work, Given(QUERY, arguments)),
        effect=Effect.READ,
        properties={
            "query": schemas.words("What it should be about, in a few words or as a question", 1000),
            "top_k": schemas.number("How many passages", 1, 50),
            "path": schemas.PATH,
        },
        required=("query",),
        knowledge={**wording.QUERY.knowledge, "typical_ms": 200, "timeout_ms": 60_000},
    )


async def _thread(do: Callable[..., str], *arguments: Any) -> str:
    return await anyio.to_thread.run_sync(do, *arguments, abandon_on_cancel=True)


def _command_times(desk: Desk) -> dict[str, Any]:
    """A command ends by its own limit before the call does by ours."""
    limit = desk.work.settings.command_seconds
    return {"typical_ms": 2000, "timeout_ms": int((limit + 15) * 1000)}
