"""The tools of a server that gives its list only to a caller who brings a key of their own.

Each caller sees what their own list names, and nothing of another's. A list is kept for a short time, in
memory alone, under a keyed hash of the caller and their key; the key itself is kept nowhere.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, cast

import anyio

from fingerpost.errors import FingerpostError, ToolFailed, ToolTimeout
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Listing
from fingerpost.servers.failures import SignInRequired

LIST_SECONDS: Final = 60.0  # after which a caller's list is read again
FAILED_SECONDS: Final = 5.0  # after which a list that could not be read is asked for again
MAX_LISTED_CALLERS: Final = 100  # whose lists are kept; beyond them the one used longest ago goes
MAX_CONCURRENT_READS: Final = 4  # lists read from one server at the same time
CALLER_KEY_NOTE: Final = "needs the caller's own key to list its tools"
CALLER_KEY_CONNECT_NOTE: Final = "needs the caller's own key to connect"

# Many servers refuse with the code -32001, which is also the one of a reply that came too late.
REFUSALS: Final = (SignInRequired, ToolFailed, ToolTimeout)
_NO_TOOLS: Final[Mapping[str, JsonObject]] = {}


@frozen
class _CallerToolList:
    """The definitions one caller was given, by name."""

    definitions: Mapping[str, JsonObject]
    since: float  # when this caller was first given one, by the clock of the event loop
    until: float  # when it is read again


class CallerToolLists:
    """What callers were given by one server, each with their own key."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._lists: OrderedDict[bytes, _CallerToolList] = OrderedDict()
        self._reading: dict[bytes, anyio.Event] = {}
        self._slots = anyio.Semaphore(MAX_CONCURRENT_READS)

    def add_to_listing(self, listing: Listing, *, max_tools: int) -> Listing:
        """The listing with the tools that callers were given, marked as such; the listing's own come first.

        Of two definitions of one tool the one that was seen first counts while its list is valid.
        """
        known = {cast("str", definition["name"]) for definition in listing.definitions}
        found: dict[str, JsonObject] = {}
        now = anyio.current_time()
        for own in sorted(self._lists.values(), key=lambda own: (own.until <= now, own.since)):
            for name, definition in own.definitions.items():
                if name not in known and len(known) + len(found) < max_tools:
                    found.setdefault(name, definition)
        if not found:
            return listing
        return replace(
            listing, definitions=(*listing.definitions, *found.values()), personal=frozenset(found)
        )

    def get_tool_names(self, caller: str, authorization: str, listing: Listing) -> frozenset[str]:
        """The tools in this caller's own list whose definition is the one in the listing."""
        own = self._lists.get(self._build_key(caller, authorization))
        if own is None:
            return frozenset()
        return frozenset(
            name
            for definition in listing.definitions
            if (name := cast("str", definition["name"])) in listing.personal
            and own.definitions.get(name) == definition
        )

    async def refresh(
        self, caller: str, authorization: str, ask: Callable[[], Awaitable[Listing]], *, timeout: float
    ) -> bool:
        """Have this caller's list read where none is valid. True: it may have changed.

        Two requests at once ask once. A refusal empties the list; where the server did not answer, the
        list from before stays.
        """
        key = self._build_key(caller, authorization)
        while (reading := self._reading.get(key)) is not None:
            await reading.wait()
        if (own := self._lists.get(key)) is not None and own.until > anyio.current_time():
            self._lists.move_to_end(key)
            return False
        reading = self._reading[key] = anyio.Event()
        try:
            before = _NO_TOOLS if own is None else own.definitions
            definitions, valid = await self._read_definitions(ask, before, timeout)
        finally:
            del self._reading[key]
            reading.set()
        now = anyio.current_time()
        since = now if own is None else own.since
        self._lists[key] = _CallerToolList(definitions=definitions, since=since, until=now + valid)
        self._lists.move_to_end(key)
        while len(self._lists) > MAX_LISTED_CALLERS:
            self._lists.popitem(last=False)
        return True

    async def _read_definitions(
        self, ask: Callable[[], Awaitable[Listing]], before: Mapping[str, JsonObject], timeout: float
    ) -> tuple[Mapping[str, JsonObject], float]:
        """What the caller is given now, and for how many seconds that is valid."""
        with anyio.move_on_after(timeout):
            try:
                async with self._slots:
                    listing = await ask()
            except REFUSALS:
                return _NO_TOOLS, FAILED_SECONDS
            except FingerpostError:
                return before, FAILED_SECONDS
            return {cast("str", given["name"]): given for given in listing.definitions}, LIST_SECONDS
        return before, FAILED_SECONDS

    def build_connection_key(self, authorization: str, session: str) -> str:
        """What the connection is known by that is opened with this key; `session`: of a caller alone."""
        return self._build_key(session, authorization).hex()

    def _build_key(self, caller: str, authorization: str) -> bytes:
        name = caller.encode("utf-8", "surrogatepass")
        given = authorization.encode("utf-8", "surrogatepass")
        joined = len(name).to_bytes(8, "big") + name + given
        return hashlib.blake2b(joined, key=self._secret, digest_size=32).digest()
