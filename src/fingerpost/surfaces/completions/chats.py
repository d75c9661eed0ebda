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

from fingerpost.records import Message, new_id
from fingerpost.store import Store

SPACE: Final = "completions.chats"
KEPT_S: Final = 24 * 3600.0
IN_MEMORY: Final = 5000
_OPEN: Final = "open"  # waits for its next request
_TAKEN: Final = "taken"  # went on with the request whose mark stands beside it
_UNCLEAR: Final = "unclear"  # so many chats read the same


class Chats:
    """Conversation ids by what was said, for each caller."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[str, tuple[str, str, str]] = OrderedDict()  # state, id or number, request

    async def find(self, whose: str, messages: Sequence[Message]) -> str:
        """The conversation these messages go on with; a new one where none can be known."""
        answers = [at for at, message in enumerate(messages) if message.role == "assistant"]
        if not answers:
            return new_id("conv")
        key, request = _mark(whose, messages[: answers[-1] + 1]), _mark("", messages[answers[-1] + 1 :])
        state, value, taken_by = await self._read(key)
        if state == _OPEN or (state == _TAKEN and taken_by == request):
            self._keep(key, (_TAKEN, value, request))
            return value
        if state == _UNCLEAR:
            left = int(value) - 1
            self._keep(key, (_UNCLEAR, str(left), "") if left else ("", "", ""))
        return new_id("conv")

    async def keep(
        self, whose: str, messages: Sequence[Message], conversation: str, *, durable: bool
    ) -> None:
        """These messages, an answer of ours last, belong to this conversation.

        `durable`: after a restart, too.
        """
        key = _mark(whose, messages)
        state, value, _ = await self._read(key)
        made = (_OPEN, conversation, "")
        if state == _UNCLEAR:
            made = (_UNCLEAR, str(int(value) + 1), "")
        elif state == _OPEN and value != conversation:
            made = (_UNCLEAR, "2", "")
        self._keep(key, made)
        if durable:
            await self._store.cache.put(SPACE, key, json.dumps(made).encode(), ttl=KEPT_S)

    async def _read(self, key: str) -> tuple[str, str, str]:
        if (known := self._known.get(key)) is not None:
            return known
        stored = await self._store.cache.get(SPACE, key)
        if not stored:
            return "", "", ""
        state, value, request = json.loads(stored)
        return str(state), str(value), str(request)

    def _keep(self, key: str, known: tuple[str, str, str]) -> None:
        self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > IN_MEMORY:
            self._known.popitem(last=False)


def _mark(whose: str, messages: Sequence[Message]) -> str:
    """A hash of what was said. Beside calls no text counts: clients leave it out."""
    mark = hashlib.sha256(hashlib.sha256(whose.encode("utf-8", "surrogatepass")).digest())
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        calls = [str(call.get("id", "")) for call in message.tool_calls]
        text = "" if calls else message.text.strip()
        said = json.dumps([message.role, text, calls, message.tool_call_id, message.parts], default=dict)
        mark.update(hashlib.sha256(said.encode()).digest())
    return mark.hexdigest()
