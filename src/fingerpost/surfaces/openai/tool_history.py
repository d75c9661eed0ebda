"""State between the requests of a chat: hidden tool calls, its conversation, its pending approval."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Message, create_id
from fingerpost.records.codec import from_json, to_json
from fingerpost.store import Store

HIDDEN_CACHE: Final = "completions.hidden"
HIDDEN_TTL_S: Final = 24 * 3600.0
MAX_HIDDEN_IN_MEMORY: Final = 500
MAX_HIDDEN_BYTES: Final = 1024 * 1024
MAX_RESTORED: Final = 200  # newest messages with calls that are looked up per request


@frozen
class HiddenMessageList:
    """Messages in order, for storage."""

    messages: tuple[Message, ...]


class HiddenMessages:
    """Hidden messages by the ids of the calls that followed them, for each caller and conversation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recent: OrderedDict[str, tuple[Message, ...]] = OrderedDict()

    async def remember(
        self, caller_key: str, calls: Iterable[JsonObject], messages: tuple[Message, ...]
    ) -> None:
        """Store the messages before these calls. They survive a restart."""
        key = _build_hidden_key(caller_key, calls)
        self._recent[key] = messages
        self._recent.move_to_end(key)
        if len(self._recent) > MAX_HIDDEN_IN_MEMORY:
            self._recent.popitem(last=False)
        value = to_json(HiddenMessageList(messages=messages))
        if len(value) <= MAX_HIDDEN_BYTES:
            await self._store.cache.put(HIDDEN_CACHE, key, value, ttl=HIDDEN_TTL_S)

    async def restore_messages(self, caller_key: str, since: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the messages with the hidden ones inserted.

        If a caller repeats a call, its hidden messages are inserted once, before the last occurrence.
        """
        calling = [at for at, message in enumerate(since) if message.tool_calls][-MAX_RESTORED:]
        places = {_build_hidden_key(caller_key, since[at].tool_calls): at for at in calling}
        kept = {at: await self._read_messages(key) for key, at in places.items()}
        whole: list[Message] = []
        for at, message in enumerate(since):
            whole += kept.get(at, ())
            whole.append(message)
        return tuple(whole)

    async def _read_messages(self, key: str) -> tuple[Message, ...]:
        if (recent := self._recent.get(key)) is not None:
            return recent
        value = await self._store.cache.get(HIDDEN_CACHE, key)
        return () if value is None else from_json(HiddenMessageList, value).messages


def _build_hidden_key(caller_key: str, calls: Iterable[JsonObject]) -> str:
    ids = sorted(str(call.get("id", "")) for call in calls)
    return hashlib.sha256(json.dumps([caller_key, *ids]).encode()).hexdigest()


CHATS_CACHE: Final = "completions.chats"
CHATS_TTL_S: Final = 24 * 3600.0
MAX_CHATS_IN_MEMORY: Final = 5000
_OPEN_STATE: Final = "open"  # waits for its next request
_CONTINUED_STATE: Final = "taken"  # continued by the request whose hash is stored with it
_AMBIGUOUS_STATE: Final = "unclear"  # several chats with the same content; their number is stored


class ChatIndex:
    """Conversation ids by message content, for each caller."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[str, tuple[str, str, str]] = OrderedDict()  # state, id or number, request

    async def find_conversation(self, caller_key: str, messages: Sequence[Message]) -> str:
        """Return the conversation that these messages continue, or a new id if it is unknown."""
        answers = [at for at, message in enumerate(messages) if message.role == "assistant"]
        if not answers:
            return create_id("conv")
        key, request = (
            _hash_messages(caller_key, messages[: answers[-1] + 1]),
            _hash_messages("", messages[answers[-1] + 1 :]),
        )
        state, value, taken_by = await self._read_entry(key)
        if state == _OPEN_STATE or (state == _CONTINUED_STATE and taken_by == request):
            self._write_entry(key, (_CONTINUED_STATE, value, request))
            return value
        if state == _AMBIGUOUS_STATE:
            left = int(value) - 1
            self._write_entry(key, (_AMBIGUOUS_STATE, str(left), "") if left else ("", "", ""))
        return create_id("conv")

    async def remember(
        self, caller_key: str, messages: Sequence[Message], conversation: str, *, durable: bool
    ) -> None:
        """Assign these messages, the last of which is our answer, to the conversation.

        `durable`: keep this after a restart.
        """
        key = _hash_messages(caller_key, messages)
        state, value, _ = await self._read_entry(key)
        made = (_OPEN_STATE, conversation, "")
        if state == _AMBIGUOUS_STATE:
            made = (_AMBIGUOUS_STATE, str(int(value) + 1), "")
        elif state == _OPEN_STATE and value != conversation:
            made = (_AMBIGUOUS_STATE, "2", "")
        self._write_entry(key, made)
        if durable:
            await self._store.cache.put(CHATS_CACHE, key, json.dumps(made).encode(), ttl=CHATS_TTL_S)

    async def _read_entry(self, key: str) -> tuple[str, str, str]:
        if (known := self._known.get(key)) is not None:
            return known
        stored = await self._store.cache.get(CHATS_CACHE, key)
        if not stored:
            return "", "", ""
        state, value, request = json.loads(stored)
        return str(state), str(value), str(request)

    def _write_entry(self, key: str, known: tuple[str, str, str]) -> None:
        self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > MAX_CHATS_IN_MEMORY:
            self._known.popitem(last=False)


def _hash_messages(caller_key: str, messages: Sequence[Message]) -> str:
    """Return a hash of the messages. Text next to tool calls is ignored, because clients omit it."""
    digest = hashlib.sha256(hashlib.sha256(caller_key.encode("utf-8", "surrogatepass")).digest())
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        calls = [str(call.get("id", "")) for call in message.tool_calls]
        text = "" if calls else message.text.strip()
        encoded = json.dumps([message.role, text, calls, message.tool_call_id, message.parts], default=dict)
        digest.update(hashlib.sha256(encoded.encode()).digest())
    return digest.hexdigest()


AWAITED_CACHE: Final = "completions.awaited"
AWAITED_TTL_S: Final = 24 * 3600.0


class AwaitedApprovals:
    """The call that each conversation waits for, by caller and conversation. Survives a restart."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get_pending_id(self, caller_key: str) -> str | None:
        """Return the id of the call that waits or was decided and not resumed yet."""
        value = await self._store.cache.get(AWAITED_CACHE, _build_awaited_key(caller_key))
        return value.decode() if value else None

    async def remember(self, caller_key: str, pending_id: str | None) -> None:
        """Remember the call, or that none waits: then the next message is a new request."""
        key, value = _build_awaited_key(caller_key), (pending_id or "").encode()
        await self._store.cache.put(AWAITED_CACHE, key, value, ttl=AWAITED_TTL_S)


def _build_awaited_key(caller_key: str) -> str:
    return hashlib.sha256(caller_key.encode("utf-8", "surrogatepass")).hexdigest()
