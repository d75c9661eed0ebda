"""The list of built-in servers, and a router that is opened together with the enabled ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack, cast

import anyio.to_thread

from fingerpost.builtin.toolkit import BuiltinHost, BuiltinServer
from fingerpost.errors import ConfigError
from fingerpost.events import EventSink
from fingerpost.records import ServerSpec
from fingerpost.router import Policy, Router
from fingerpost.settings import Settings

if TYPE_CHECKING:
    from fingerpost.llm import ChatModel
    from fingerpost.narrow.scorer import Scorer
    from fingerpost.policy.rules import PolicyRule
SERVER_TITLES: Final[Mapping[str, str]] = {
    "workspace": "Files and commands of one folder",
    "knowledge": "A folder of notes, searchable by words and meaning",
    "memory": "What a model should remember, by person and conversation; and a place to think",
    "collaboration": "Questions and approvals put to the person",
    "specialists": "Subagents, several experts at once, and assets",
    "directives": "Directives for a VR or AR client to act on",
}
SERVER_NAMES: Final = tuple(SERVER_TITLES)


def make_server(name: str, host: BuiltinHost) -> BuiltinServer:
    """Create the server of this name, not yet open."""
    if name not in SERVER_TITLES:
        message = f"there is no server {name!r:.60} of our own"
        raise ConfigError(message, hint=f"There are {', '.join(SERVER_NAMES)}.")
    module = import_module(f"fingerpost.builtin.{name}")
    return cast("BuiltinServer", module.make(host))


class RouterOptions(TypedDict, total=False):
    """Options of a `Router` besides servers and settings."""

    sinks: Iterable[EventSink]
    model: ChatModel | None
    lite: ChatModel | None
    prime: ChatModel | None
    policy: Policy | None
    scorers: Iterable[Scorer]
    rules: Iterable[PolicyRule]
    frees_encoder: bool


@asynccontextmanager
async def open_router(
    servers: Iterable[ServerSpec] = (),
    *,
    settings: Settings | None = None,
    folder: Path | None = None,
    **options: Unpack[RouterOptions],
) -> AsyncGenerator[Router]:
    """Open a router with these servers and those of `settings.builtin.enabled`.

    A built-in server gives way to one of these with its name. `folder` is the working directory of the
    built-in servers.
    """
    specs = tuple(servers)
    settings = _leave_out(settings or Settings(), {spec.name for spec in specs})
    working_directory = folder or await anyio.to_thread.run_sync(Path.cwd)
    host = BuiltinHost(settings=settings, folder=working_directory)
    own = tuple(make_server(name, host) for name in settings.builtin.enabled)
    async with AsyncExitStack() as stack:
        for server in own:
            await stack.enter_async_context(server.open())
        router = Router(
            (*specs, *(server.build_spec() for server in own)),
            settings=add_builtin_settings(settings, own),
            **options,
        )
        await stack.enter_async_context(router)
        host.router = router
        yield router


def add_builtin_settings(settings: Settings, own: Iterable[BuiltinServer]) -> Settings:
    """Return the settings with those of the built-in servers. The operator's take precedence."""
    own = tuple(own)
    if not own:
        return settings
    overrides = (override for server in own for override in server.build_overrides())
    rules = (rule for server in own for rule in server.rules)
    update = {"tools": (*overrides, *settings.tools), "policy": (*settings.policy, *rules)}
    return settings.model_copy(update=update)


def _leave_out(settings: Settings, names: Collection[str]) -> Settings:
    """Return the settings without built-in servers of these names, and with each of the others once."""
    enabled = tuple(name for name in dict.fromkeys(settings.builtin.enabled) if name not in names)
    return settings.model_copy(update={"builtin": settings.builtin.model_copy(update={"enabled": enabled})})
