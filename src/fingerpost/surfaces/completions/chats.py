"""Which conversation a chat without an id is: known by what was said in it, our last answer included.

A client sends the whole chat each time. What it read up to our last answer is looked up here; a chat that
holds no answer of ours is a new conversation, whatever words it begins with. Two chats of one caller that
read the same word for word cannot be told apart when one goes on, so both begin anew: no chat ever gets
what another was allowed or offered. System messages do not count; many clients write the time into them.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from fingerpost.records import Message, create_id
from fingerpost.store import Store

CHATS_CACHE: Final = "completions.chats"
CHATS_TTL_S: Final = 24 * 3600.0
MAX_CHATS_IN_MEMORY: Final = 5000
_OPEN_STATE: Final = "open"  # waits for its next request
_CONTINUED_STATE: Final = "taken"  # went on with the request whose mark stands beside it
_AMBIGUOUS_STATE: Final = "unclear"  # so many chats read the same


class ChatIndex:
    """Conversation ids by what was said, for each caller."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[str, tuple[str, str, str]] = OrderedDict()  # state, id or number, request

    async def find_conversation(self, caller_key: str, messages: Sequence[Message]) -> str:
        """The conversation these messages go on with; a new one where none can be known."""
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
        """These messages, an answer of ours last, belong to this conversation.

        `durable`: after a restart, too.
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
    """A hash of what was said. Beside calls no text counts: clients leave it out."""
    mark = hashlib.sha256(hashlib.sha256(caller_key.encode("utf-8", "surrogatepass")).digest())
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        calls = [str(call.get("id", "")) for call in message.tool_calls]
        text = "" if calls else message.text.strip()
        said = json.dumps([message.role, text, calls, message.tool_call_id, message.parts], default=dict)
        mark.update(hashlib.sha256(said.encode()).digest())
    return mark.hexdigest()
