"""Memory for models: `memory_operations` stores and finds memories by person and conversation; `think` lets a
model write down its thoughts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from fingerpost.builtin.host import BuiltinHost
from fingerpost.builtin.memory.store import MemoryKeeper, build_owner
from fingerpost.builtin.toolkit import BuiltinServer, BuiltinTool, ToolCaller, ToolRefused, ToolReply
from fingerpost.records import Effect, JsonObject
from fingerpost.settings import OwnRule
from fingerpost.store import Memory, MemoryOwner

MEMORY_TOOL: Final = "memory_operations"
DEFAULT_SHOWN: Final = 10
MAX_SHOWN: Final = 50
MAX_FORGOTTEN: Final = 50  # per query; for more there is `forget_all`, which needs approval
MAX_QUERY_LENGTH: Final = 2_000
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

MEMORY_DESCRIPTION: Final = (
    "Remember things for the person and find them again, in this conversation or any other. Operations: "
    "store (`text`; facts, preferences and decisions worth keeping, each complete in itself), "
    "search (`query`, by words and meaning), list (the newest first), "
    "forget (`id` of one; or `query`, and then once more with `confirm`, the number it told), "
    "forget_all (everything; the person is asked). Scope `user` holds in all conversations of the person, "
    "`conversation` in this one alone. Secrets are refused."
)

_PROPERTIES: Final[dict[str, JsonObject]] = {
    "operation": {"type": "string", "enum": list(EFFECTS), "description": "What to do"},
    "text": {"type": "string", "minLength": 1, "description": "store: what to remember"},
    "query": {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_QUERY_LENGTH,
        "description": "search: what is looked for; forget: words that are all in what is to be forgotten",
    },
    "id": {"type": "string", "minLength": 1, "maxLength": 100, "description": "forget: which one (mem_…)"},
    "confirm": {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_FORGOTTEN,
        "description": "forget by query: how many are to be forgotten, as it told before",
    },
    "scope": {
        "type": "string",
        "enum": ["user", "conversation"],
        "description": "store: where it holds (user unless said); others: only those",
    },
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_SHOWN,
        "description": f"Most shown ({DEFAULT_SHOWN})",
    },
}


def build_memory_tool(keeper: MemoryKeeper) -> BuiltinTool:
    """Build the tool for this keeper."""
    return BuiltinTool(
        name=MEMORY_TOOL,
        title="Memory",
        description=MEMORY_DESCRIPTION,
        run=_MemoryOperations(keeper).run,
        effect=Effect.DESTROY,
        properties=_PROPERTIES,
        required=("operation",),
        knowledge={
            "operations": dict(EFFECTS),
            "category": "memory",
            "typical_ms": 30,
            "timeout_ms": 30_000,
            "keywords": (
                "remember", "memory", "memorise", "memorize", "forget", "recall", "keep in mind", "note that",
                "my favourite", "my favorite", "i told you", "do you remember",
            ),
            "purpose": "Keeps what should still be known later, and finds it again.",
            "when": (
                "the person asks to remember or forget something, or what is remembered",
                "a preference or a fact about the person comes up that will matter again",
                "a request rests on something said in an earlier conversation",
            ),
            "when_not": ("it stands in this conversation already", "it is a password, key or card number"),
            "examples": (
                "Remember that I prefer short answers",
                "What do you remember about my trip?",
                "Forget what I said about the old address",
            ),
        },
    )  # fmt: skip


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
        return ToolReply(_format_memories([one.memory for one in found]))

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
        message = f"{operation} needs `{name}`{f' or `{alternative}`' if alternative else ''}."
        raise ToolRefused(message)
    return value


def _get_limit(arguments: JsonObject) -> int:
    limit = arguments.get("limit")
    return limit if isinstance(limit, int) else DEFAULT_SHOWN


def _format_memories(shown: Sequence[Memory]) -> str:
    return "\n".join(_format_memory(memory) for memory in shown[:MAX_SHOWN])


def _format_memory(memory: Memory) -> str:
    text = memory.text if len(memory.text) <= MAX_SHOWN_LENGTH else memory.text[: MAX_SHOWN_LENGTH - 1] + "…"
    here = ", this conversation" if memory.conversation is not None else ""
    return f"- {text} [{memory.memory_id}, {memory.at:%Y-%m-%d}{here}]"


THINK_TOOL: Final = "think"
MAX_THOUGHT_LENGTH: Final = 20_000


def build_think_tool() -> BuiltinTool:
    return BuiltinTool(
        name=THINK_TOOL,
        title="Think",
        description=(
            "Think something through in writing before you act: weigh what is known, plan the next steps, "
            "check a result against the rules. Changes nothing, finds nothing out and answers nothing."
        ),
        run=_run_think,
        effect=Effect.READ,
        properties={
            "thought": {
                "type": "string", "minLength": 1, "maxLength": MAX_THOUGHT_LENGTH,
                "description": "What you think"
            },
        },
        required=("thought",),
        knowledge={
            "category": "memory",
            "typical_ms": 5,
            "timeout_ms": 10_000,
            "priority": 10,
            "keywords": ("think it through", "think aloud", "step by step"),
            "purpose": "A place to think before a hard step.",
            "when": ("several tools have to be used one after another, and their results weighed",),
            "when_not": ("you want to find something out or remember it",),
        },
    )  # fmt: skip


async def _run_think(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
    return ToolReply("Noted. Go on.")


INSTRUCTIONS = (
    "Remember what will matter again (memory_operations) and look there before you ask the person twice. "
    "Think hard steps through in writing (think)."
)


def make(host: BuiltinHost) -> BuiltinServer:
    """Create the server, not yet open."""
    keeper = MemoryKeeper(host)
    return BuiltinServer(
        "memory",
        (build_memory_tool(keeper), build_think_tool()),
        instructions=INSTRUCTIONS,
        rules=RULES,
        open=keeper.open,
        get_context=host.get_context,
    )
