"""Pins: which definitions are trusted, which changed, and a person's word on it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

import anyio.to_thread
from pydantic import Field

from fingerpost.catalog import tool_key
from fingerpost.catalog.pins import is_server_key
from fingerpost.frozen import frozen
from fingerpost.records import Pin, Quarantined, Right
from fingerpost.router import Router
from fingerpost.surfaces.api.operation import ApiRequest, Operation, Problem
from fingerpost.surfaces.api.resources.bounds import Bounds, bounds_of
from fingerpost.surfaces.api.resources.changes import DefinitionChange, change_of
from fingerpost.surfaces.api.resources.words import Cursor, Limit, page_of

TAG: Final = "pins"
PinState = Literal["quarantined", "same", "not_seen"]
_ORDER: Final[Mapping[PinState, str]] = {"quarantined": "0", "same": "1", "not_seen": "1"}


@frozen
class PinQuery:
    """Which pins are wanted."""

    state: PinState | None = None
    limit: Limit = 100
    before: Cursor | None = None


@frozen
class PinLine:
    """One trusted definition. `not_seen`: no server offers the tool now. Without a fingerprint: it is new."""

    key: str
    state: PinState
    fingerprint: str
    pinned_at: datetime
    accepted_by: str | None  # None: seen first, accepted by nobody in particular
    change: DefinitionChange | None = None


@frozen
class PinPage:
    """What waits for a person first, then by key."""

    items: tuple[PinLine, ...]
    next: str | None = None


@frozen
class Acceptance:
    """The fingerprint of the definition that was looked at: one that changed since is not accepted."""

    fingerprint: Annotated[str, Field(min_length=1, max_length=200)]


def operations(router: Router) -> tuple[Operation, ...]:
    pins = Pins(router)
    return (
        Operation(
            method="GET",
            path="/api/pins",
            name="list_pins",
            summary="Trusted definitions, and those that changed since",
            right=Right.WATCH,
            answer=pins.list,
            query=PinQuery,
            returns=PinPage,
            tag=TAG,
        ),
        Operation(
            method="POST",
            path="/api/pins/{server}/{tool}/accept",
            name="accept_pin",
            summary="Trust the changed definition of a tool",
            right=Right.MANAGE,
            answer=pins.accept,
            body=Acceptance,
            returns=PinLine,
            problems=(404, 409),
            tag=TAG,
        ),
    )


class Pins:
    """What is trusted."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def list(self, request: ApiRequest) -> PinPage:
        query: PinQuery = request.query
        bounds = bounds_of(request.principal, self._router.profiles)
        kept = await self._router.store.pins.all()
        held = self._held()
        waiting = {key: entry.pin for key, entry in held.items() if entry.new}
        pins = {
            key: pin
            for key, pin in {**waiting, **kept}.items()
            if not is_server_key(key) and _hold(bounds, key)
        }
        offered = {card.key for card in (*self._router.tools.cards, *self._router.catalog.shut.cards)}

        def find() -> PinPage:
            states: dict[str, PinState] = {key: _state(key, held, offered) for key in pins}
            places = sorted((_place(states[key], key), key) for key in pins)
            found = [
                (place, key)
                for place, key in places
                if query.state in (None, states[key]) and (query.before is None or place > query.before)
            ]
            page, last = page_of(found, query.limit)
            items = tuple(_line(pins[key], states[key], held.get(key)) for _, key in page)
            return PinPage(items=items, next=None if last is None else last[0])

        return await anyio.to_thread.run_sync(find)

    async def accept(self, request: ApiRequest) -> PinLine:
        wanted: Acceptance = request.body
        server, tool = request.path["server"], request.path["tool"]
        held = self._held()
        key = next((key for key in (f"{server}/{tool}", tool_key(server, tool)) if key in held), None)
        if key is None or not _hold(bounds_of(request.principal, self._router.profiles), key):
            detail = f"No changed definition of {server}/{tool} waits to be accepted."
            raise Problem(404, "Nothing to accept", detail)
        seen = held[key].card.fingerprint
        if wanted.fingerprint != seen:
            detail = f"{key} is not what it was when it was shown. Look at the new difference."
            raise Problem(409, "The definition changed once more", detail, fingerprint=seen)
        pin = await self._router.accept(key, by=request.principal.name, fingerprint=seen)
        return _line(pin, "same", None)

    def _held(self) -> dict[str, Quarantined]:
        return {entry.card.key: entry for entry in self._router.catalog.quarantined}


def _hold(bounds: Bounds, key: str) -> bool:
    return bounds.hold_tool(key.partition("/")[0], key)


def _state(key: str, held: Mapping[str, Quarantined], offered: set[str]) -> PinState:
    if key in held:
        return "quarantined"
    return "same" if key in offered else "not_seen"


def _place(state: PinState, key: str) -> str:
    """Where it stands in the list; also what a page goes on from."""
    return f"{_ORDER[state]}:{key}"


def _line(pin: Pin, state: PinState, held: Quarantined | None) -> PinLine:
    return PinLine(
        key=pin.key,
        state=state,
        fingerprint=pin.fingerprint,
        pinned_at=pin.pinned_at,
        accepted_by=pin.accepted_by,
        change=None if held is None else change_of(held),
    )
