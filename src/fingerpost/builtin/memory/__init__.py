"""Memory for models: `memory_operations` stores and finds memories by person and conversation; `think` lets a
model write down its thoughts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from fingerpost.builtin.memory.store import MemoryKeeper, build_owner
from fingerpost.builtin.toolkit import (
    BuiltinHost,
    BuiltinServer,
    ToolCaller,
    ToolDefinitions,
    ToolRefused,
    ToolReply,
)
from fingerpost.records import Effect, JsonObject
from fingerpost.settings import OwnRule
from fingerpost.store import Memory, MemoryOwner

DEFINITIONS: Final = ToolDefinitions.load(__name__)
MEMORY_TOOL: Final = "memory_operations"
DEFAULT_SHOWN: Final = 10
MAX_SHOWN: Final = 50
MAX_FORGOTTEN: Final = 50  # per query; for more there is `forget_all`, which needs approval
MAX_SHOWN_LENGTH: Final = 2_000

MemoryScope = Literal["user", "conversation"]

EFFECTS: Final[Mapping[str, Effect]] = {
    "store": Effect.WRITE,
    "search": Effect.READ,
    "list": Effect.READ,
    "forget": Effect.WRITE,
    "forget_all": Effect.DESTROY,
}
RULES: Final = tuple(
    OwnRule(server="memory", tool=MEMORY_TOOL, operation=operation, verdict="allow", reason=reason)
    for operation, reason in (
        ("store", "remembering something for its own person is safe"),
        ("forget", "forgetting what was named is safe"),
    )
)


class _MemoryOperations:
    """Implements the operations."""

    def __init__(self, keeper: MemoryKeeper) -> None:
        self._keeper = keeper
        self._handlers: dict[str, Callable[[JsonObject, MemoryOwner], Awaitable[ToolReply]]] = {
            "store": self._store,
            "search": self._search,
            "list": self._list,
            "forget": self._forget,
            "forget_all": self._forget_all,
        }

    async def run(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        return await self._handlers[str(arguments["operation"])](arguments, build_owner(caller))

    async def _store(self, arguments: JsonObject, owner: MemoryOwner) -> ToolReply:
        text = _get_argument(arguments, "text", "store")
        if _get_scope(arguments, owner) != "conversation":
            owner = replace(owner, conversation=None)
        memory, gone = await self._keeper.store(owner, text)
        where = "in this conversation" if memory.conversation is not None else "in every conversation"
        room = f" The {gone} oldest went to make room." if gone else ""
        return ToolReply(f"Remembered as {memory.memory_id}; it holds {where}.{room}")

    async def _search(self, arguments: JsonObject, owner: MemoryOwner) -> ToolReply:
        query = _get_argument(arguments, "query", "search")
        within = await self._find_ids(arguments, owner)
        found = await self._keeper.search(owner, query, _get_limit(arguments), within=within)
        if not found:
            return ToolReply("Nothing that is remembered fits this.")
        return ToolReply(_format_memories(found))

    async def _list(self, arguments: JsonObject, owner: MemoryOwner) -> ToolReply:
        memories = _filter_scope(await self._keeper.list_all(owner), _get_scope(arguments, owner))
        if not memories:
            return ToolReply("Nothing is remembered.")
        shown = memories[: _get_limit(arguments)]
        count = f"{len(memories)} remembered" + (
            "" if len(shown) == len(memories) else ", the newest of them"
        )
        return ToolReply(f"{count}:\n{_format_memories(shown)}")

    async def _forget(self, arguments: JsonObject, owner: MemoryOwner) -> ToolReply:
        named = arguments.get("id")
        if isinstance(named, str):
            if not await self._keeper.forget(owner, [named]):
                message = f"Nothing is remembered as {named!r:.120}."
                raise ToolRefused(message, hint="`list` and `search` show the ids.")
            return ToolReply(f"Forgot {named}.")
        query = _get_argument(arguments, "query", "forget", alternative="id")
        memories = await self._keeper.find_matching(owner, query)
        found = _filter_scope(memories, _get_scope(arguments, owner))
        return await self._forget_found(found, arguments, owner)

    async def _forget_found(
        self, found: Sequence[Memory], arguments: JsonObject, owner: MemoryOwner
    ) -> ToolReply:
        """Show the matching memories first, and delete them when the call repeats their number."""
        if not found:
            return ToolReply("Nothing that is remembered holds all of these words; nothing was forgotten.")
        if len(found) > MAX_FORGOTTEN:
            message = f"{len(found)} memories hold these words: too many to forget by a query."
            raise ToolRefused(message, hint="Use more words, or forget_all.")
        if arguments.get("confirm") != len(found):
            text = f"Nothing was forgotten yet. To forget these, call forget again with confirm={len(found)}:"
            return ToolReply(f"{text}\n{_format_memories(found)}")
        gone = await self._keeper.forget(owner, [memory.memory_id for memory in found])
        return ToolReply(f"Forgot {gone}.")

    async def _forget_all(self, arguments: JsonObject, owner: MemoryOwner) -> ToolReply:
        only = _get_scope(arguments, owner) == "conversation"
        gone = await self._keeper.forget_all(owner, conversation_only=only)
        return ToolReply(f"Forgot {'what belonged to this conversation' if only else 'everything'}: {gone}.")

    async def _find_ids(self, arguments: JsonObject, owner: MemoryOwner) -> frozenset[str] | None:
        scope = _get_scope(arguments, owner)
        if scope is None:
            return None
        return frozenset(
            memory.memory_id for memory in _filter_scope(await self._keeper.list_all(owner), scope)
        )


def _get_scope(arguments: JsonObject, owner: MemoryOwner) -> MemoryScope | None:
    scope = arguments.get("scope")
    if scope == "conversation":
        if owner.conversation is None:
            message = "This call belongs to no conversation."
            raise ToolRefused(message, hint="Leave `scope` out, or use the scope `user`.")
        return "conversation"
    return "user" if scope == "user" else None


def _filter_scope(memories: Sequence[Memory], scope: MemoryScope | None) -> list[Memory]:
    """Return the memories of this scope. `user` means memories without a conversation."""
    if scope is None:
        return list(memories)
    return [memory for memory in memories if (memory.conversation is None) == (scope == "user")]


def _get_argument(arguments: JsonObject, name: str, operation: str, *, alternative: str = "") -> str:
    value = str(arguments.get(name) or "").strip()
    if not value:
        raise ToolRefused(f"{operation} needs `{name}`{f' or `{alternative}`' if alternative else ''}.")
    return value


def _get_limit(arguments: JsonObject) -> int:
    limit = arguments.get("limit")
    return limit if isinstance(limit, int) else DEFAULT_SHOWN


def _format_memories(shown: Sequence[Memory]) -> str:
    lines: list[str] = []
    for memory in shown[:MAX_SHOWN]:
        text = memory.text
        text = text if len(text) <= MAX_SHOWN_LENGTH else text[: MAX_SHOWN_LENGTH - 1] + "…"
        here = ", this conversation" if memory.conversation is not None else ""
        lines.append(f"- {text} [{memory.memory_id}, {memory.at:%Y-%m-%d}{here}]")
    return "\n".join(lines)


THINK_TOOL: Final = "think"


async def _run_think(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
    return ToolReply("Noted. Go on.")


def make(host: BuiltinHost) -> BuiltinServer:
    """Create the server, not yet open."""
    keeper = MemoryKeeper(host)
    return BuiltinServer(
        "memory",
        (
            DEFINITIONS.build_tool(
                MEMORY_TOOL,
                _MemoryOperations(keeper).run,
                Effect.DESTROY,
                knowledge={"operations": {name: effect.value for name, effect in EFFECTS.items()}},
            ),
            DEFINITIONS.build_tool(THINK_TOOL, _run_think, Effect.READ),
        ),
        instructions=DEFINITIONS.instructions,
        rules=RULES,
        open=keeper.open,
        get_context=host.get_context,
    )
