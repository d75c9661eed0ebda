"""Memory for models: `memory_operations` stores and finds memories, `think` writes down thoughts."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import anyio
import anyio.to_thread

from fingerpost.builtin.passages import PassageIndex, TextPassage
from fingerpost.builtin.toolkit import (
    BuiltinHost,
    BuiltinServer,
    ToolCaller,
    ToolDefinitions,
    ToolRefused,
    ToolReply,
)
from fingerpost.narrow.lexical_terms import iterate_terms
from fingerpost.records import LOCAL_NAME, Effect, JsonObject, create_id, utc_now
from fingerpost.redaction import scrub
from fingerpost.settings import OwnRule
from fingerpost.store import Memory, MemoryOwner, MemoryStore, Store
from fingerpost.store.memories import MemoryStamp

MIN_CARD_DIGITS: Final = 13
MAX_CARD_DIGITS: Final = 19

_PREFIXES: Final = "[הובלכמש]{0,3}"  # the, and, in, to, as, from, that: prefixes in Hebrew
_SECRET_WORDS: Final = (
    r"pass(?:word|wd|phrase|code)?|pwd|pin(?:[ -]?code)?|secret(?:[ _-]?key)?|api[ _-]?key|access[ _-]?key|"
    r"(?:access|auth|api|bearer|refresh)[ _-]?token|cvv2?|cvc2?|otp|passwort|kennwort|mot de passe|"
    rf"contraseña|senha|wachtwoord|{_PREFIXES}סיסמ(?:ה|א|ת|ות|אות)"
)
# "the password for the router is hunter2", "PIN: 4711", "api key = …". A few words may come between the
# name and its value, but no end of a sentence.
_STATED_SECRET: Final = re.compile(
    rf"(?<!\w)(?:{_SECRET_WORDS})s?(?!\w)[\"'`]?(?:[^\S\n]{{1,3}}[^\s.:=!?;,]{{1,30}}){{0,6}}?[^\S\n]{{0,3}}"
    r"(?:(?P<sign>[:=])|(?<!\w)(?:is|was|ist|lautet|est|es|é|הוא|היא)(?!\w))[^\S\n]{0,3}[\"'`]?(?P<value>\S{3,200})",
    re.IGNORECASE,
)
# "the code of the safe is 4711": there are many kinds of codes, so the text must say what it opens.
_CODE: Final = re.compile(
    rf"(?<!\w)(?:codes?|combination|{_PREFIXES}קוד)(?!\w)"
    r"(?P<about>(?:[^\S\n]{1,3}[^\s.:=!?;,]{1,30}){0,6}?)[^\S\n]{0,3}"
    r"(?:[:=]|(?<!\w)(?:is|was|הוא|היה)(?!\w))[^\S\n]{0,3}[\"'`#]?\d(?:[ -]?\d){2,11}(?![\w-]|\.\d)",
    re.IGNORECASE,
)
_LOCK_WORDS: Final = re.compile(
    r"(?:(?:pad)?locks?|locker|lockbox|safe|vault|doors?|alarm|gate|garage|entry|entrance|access|security|"
    r"building|house|phone|sim|cards?|account|bank|bike|suitcase|unlock|voicemail)(?:['’]s)?"
    rf"|{_PREFIXES}(?:כספת|דלת|אזעקה|שער|כניסה|בניין|טלפון|כרטיס|חשבון|מנעול|חניה|לוקר)",
    re.IGNORECASE,
)
_HARMLESS_CODES: Final = re.compile(
    r"area|bar|booking|build|colou?r|country|dial(?:l?ing)?|discount|dress|error|exit|http|model|post(?:al)?|"
    r"product|qr|response|return|reason|source|status|swift|tax|voucher|zip",
    re.IGNORECASE,
)
_CONTEXT_LENGTH: Final = 60  # characters before the word that are searched for two words
_PIN: Final = re.compile(r"(?<!\w)PIN(?:[ -]?code)?[^\S\n]{1,3}#?\d{4,8}(?![\w-]|\.\d)")
# "the password is wrong" contains no secret.
_PLAIN_WORD: Final = re.compile(r"^[^\W\d_]{1,40}[\"'`.,;:!?)]{0,3}$")
_DIGITS: Final = re.compile(r"(?<![\w.])\d{1,19}(?:[ \u00a0-]\d{1,19}){0,40}(?!\w)")
# First digits of card numbers.
_CARD_PREFIXES: Final = re.compile(r"^(?:4|5[1-5]|2[2-7]|3[47]|3[068]|6011|64[4-9]|65|62|35)")


def find_secret(text: str) -> str | None:
    """Return a description of the secret in the text, or None."""
    if scrub(text) != text:
        return "a key, token or password"
    if any(_has_card_number(found[0]) for found in _DIGITS.finditer(text)):
        return "a card number"
    for found in _STATED_SECRET.finditer(text):
        # Any text after `:` or `=` is a value, but after "is" no ordinary word.
        if found["sign"] is not None or _PLAIN_WORD.match(found["value"]) is None:
            return "a password or code"
    if _PIN.search(text) or any(_is_lock_code(found) for found in _CODE.finditer(text)):
        return "a password or code"
    return None


def _is_lock_code(found: re.Match[str]) -> bool:
    """Return whether the words around a code say that it opens a lock, unlike a postal code."""
    text, at = found.string, found.start()
    before = re.split(r"[.:=!?;,\n]", text[max(0, at - _CONTEXT_LENGTH) : at])[-1].split()[-2:]
    if before and _HARMLESS_CODES.fullmatch(before[-1]):
        return False
    return any(_LOCK_WORDS.fullmatch(word) for word in (*before, *found["about"].split()))


def _has_card_number(run: str) -> bool:
    """Return whether adjacent groups of digits form a card number. A year may precede it."""
    groups = re.split(r"[ \u00a0-]", run)
    for first in range(len(groups)):
        number = ""
        for group in groups[first:]:
            number += group
            if len(number) > MAX_CARD_DIGITS:
                break
            if len(number) >= MIN_CARD_DIGITS and _is_card(number):
                return True
    return False


def _is_card(number: str) -> bool:
    if _CARD_PREFIXES.match(number) is None:
        return False
    digits = [int(sign) for sign in reversed(number)]
    doubled = [digit * 2 - 9 * (digit > 4) if at % 2 else digit for at, digit in enumerate(digits)]
    return sum(doubled) % 10 == 0


MAX_INDEXES: Final = 32  # owners, least recently used removed first


@dataclass(slots=True)
class _OwnerIndex:
    """A search index of one owner's memories. Memories never change, so each is read once."""

    index: PassageIndex
    memories: dict[str, Memory] = field(default_factory=dict[str, Memory])
    stamp: MemoryStamp | None = None

    def update(self, memories: Sequence[Memory]) -> None:
        now = {memory.memory_id: memory for memory in memories}
        for gone in self.memories.keys() - now.keys():
            self.index.remove(gone)
        for name in now.keys() - self.memories.keys():
            self.index.set_source(name, [TextPassage(source=name, text=now[name].text)])
        self.memories = now

    def search(self, query: str, limit: int, within: frozenset[str] | None) -> list[Memory]:
        wanted = None if within is None else within.__contains__
        hits = self.index.search(query, limit, within=wanted)
        known = (self.memories.get(hit.passage.source) for hit in hits)
        return [memory for memory in known if memory is not None]


class MemoryKeeper:
    """Stores, finds and deletes memories. Each operation is limited to the memories of one owner."""

    def __init__(self, host: BuiltinHost) -> None:
        self._host = host
        self._settings = host.settings.builtin.memory
        self._indexes: OrderedDict[MemoryOwner, _OwnerIndex] = OrderedDict()
        self._locks: dict[MemoryOwner, anyio.Lock] = {}
        self._own_store: Store | None = None
        self._stack: AsyncExitStack | None = None
        self._open_lock = anyio.Lock()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Open the keeper. If the server runs alone, it opens the store itself on first use."""
        async with AsyncExitStack() as stack:
            self._stack = stack
            try:
                yield
            finally:
                self._stack = self._own_store = None
                await anyio.to_thread.run_sync(self._close_indexes)

    def _close_indexes(self) -> None:
        while self._indexes:
            self._indexes.popitem()[1].index.close()

    async def store(self, owner: MemoryOwner, text: str) -> tuple[Memory, int]:
        """Store a memory. Return it and how many old ones it displaced. Raises `ToolRefused` for secrets."""
        limit = self._settings.text_bytes
        if len(text.encode("utf-8", "replace")) > limit:
            message = f"A memory may have {limit:,} bytes, and this has more."
            raise ToolRefused(message, hint="Remember the essence of it, or raise builtin.memory.text_bytes.")
        kind = await anyio.to_thread.run_sync(find_secret, text)
        if kind is not None:
            message = f"This looks like {kind}, and secrets are not remembered."
            raise ToolRefused(message, hint="Leave it out and remember the rest, or where it is kept.")
        person, conversation = owner.person, owner.conversation
        memory = Memory(
            memory_id=create_id("mem"), text=text, at=utc_now(), person=person, conversation=conversation
        )
        return memory, await (await self._open_memory_store()).add(memory, max_memories=self._settings.most)

    async def list_all(self, owner: MemoryOwner) -> list[Memory]:
        """Return all memories that the owner can see, newest first."""
        return await (await self._open_memory_store()).list_all(owner)

    async def search(
        self, owner: MemoryOwner, query: str, limit: int, *, within: frozenset[str] | None = None
    ) -> list[Memory]:
        """Return the best memories first. `within` restricts the search to these ids."""
        owner_index = await self._refresh_owner_index(owner)
        return await anyio.to_thread.run_sync(owner_index.search, query, limit, within)

    async def forget(self, owner: MemoryOwner, ids: Sequence[str]) -> int:
        return await (await self._open_memory_store()).forget(owner, ids)

    async def forget_all(self, owner: MemoryOwner, *, conversation_only: bool) -> int:
        return await (await self._open_memory_store()).forget_all(owner, conversation_only=conversation_only)

    async def _refresh_owner_index(self, owner: MemoryOwner) -> _OwnerIndex:
        """Return the owner's index, updated from the store, which another process may have changed."""
        memories = await self._open_memory_store()
        async with self._locks.setdefault(owner, anyio.Lock()):
            if owner not in self._indexes:
                # Vectors are not stored in a file, so that nothing remains of deleted memories.
                by_meaning = self._host.settings.flags.dense_scores
                self._indexes[owner] = _OwnerIndex(PassageIndex(by_meaning=by_meaning))
            owner_index = self._indexes[owner]
            self._indexes.move_to_end(owner)
            stamp = await memories.get_stamp(owner)
            if owner_index.stamp != stamp:
                current = await memories.list_all(owner)
                await anyio.to_thread.run_sync(owner_index.update, current)
                owner_index.stamp = stamp
        while len(self._indexes) > MAX_INDEXES:
            oldest, old = self._indexes.popitem(last=False)
            old.index.close()
            self._locks.pop(oldest, None)
        return owner_index

    async def _open_memory_store(self) -> MemoryStore:
        if self._host.router is not None:
            return self._host.router.store.memories
        async with self._open_lock:
            if self._own_store is None:
                if self._stack is None:
                    raise ToolRefused("The memory is not open.")
                opening = Store.open(self._host.settings.store.url)
                self._own_store = await self._stack.enter_async_context(opening)
        return self._own_store.memories


def _filter_matching(memories: Sequence[Memory], query: str) -> list[Memory]:
    wanted = set(iterate_terms(query))
    return [memory for memory in memories if wanted and wanted <= set(iterate_terms(memory.text))]


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
        person = None if caller.user == LOCAL_NAME else caller.user
        return await self._handlers[str(arguments["operation"])](
            arguments, MemoryOwner(person=person, conversation=caller.conversation)
        )

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
        part = "" if len(shown) == len(memories) else ", the newest of them"
        return ToolReply(f"{len(memories)} remembered{part}:\n{_format_memories(shown)}")

    async def _forget(self, arguments: JsonObject, owner: MemoryOwner) -> ToolReply:
        named = arguments.get("id")
        if isinstance(named, str):
            if not await self._keeper.forget(owner, [named]):
                message = f"Nothing is remembered as {named!r:.120}."
                raise ToolRefused(message, hint="`list` and `search` show the ids.")
            return ToolReply(f"Forgot {named}.")
        query = _get_argument(arguments, "query", "forget", alternative="id")
        memories = await self._keeper.list_all(owner)
        memories = await anyio.to_thread.run_sync(_filter_matching, memories, query)
        found = _filter_scope(memories, _get_scope(arguments, owner))
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
        memories = _filter_scope(await self._keeper.list_all(owner), scope)
        return frozenset(memory.memory_id for memory in memories)


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
