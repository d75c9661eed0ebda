"""Pins: which definitions are trusted, which changed, and a person's word on it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

import anyio.to_thread
from pydantic import Field

from fingerpost.catalog import build_tool_key
from fingerpost.catalog.pins import is_server_key
from fingerpost.frozen import frozen
from fingerpost.records import Pin, Quarantined, Right
from fingerpost.router import Router
from fingerpost.surfaces.api.operation import ApiOperation, ApiProblem, ApiRequest
from fingerpost.surfaces.api.resources.bounds import ManagedScope, build_managed_scope
from fingerpost.surfaces.api.resources.changes import DefinitionChange, build_change
from fingerpost.surfaces.api.resources.words import PageCursor, PageLimit, split_page

PINS_TAG: Final = "pins"
PinState = Literal["quarantined", "same", "not_seen"]
_STATE_ORDER: Final[Mapping[PinState, str]] = {"quarantined": "0", "same": "1", "not_seen": "1"}


@frozen
class PinQuery:
    """Which pins are wanted."""

    state: PinState | None = None
    limit: PageLimit = 100
    before: PageCursor | None = None


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


def build_pin_operations(router: Router) -> tuple[ApiOperation, ...]:
    pins = PinOperations(router)
    return (
        ApiOperation(
            method="GET",
            path="/api/pins",
            name="list_pins",
            summary="Trusted definitions, and those that changed since",
            right=Right.WATCH,
            answer=pins.list_pins,
            query=PinQuery,
            returns=PinPage,
            tag=PINS_TAG,
        ),
        ApiOperation(
            method="POST",
            path="/api/pins/{server}/{tool}/accept",
            name="accept_pin",
            summary="Trust the changed definition of a tool",
            right=Right.MANAGE,
            answer=pins.accept_definition,
            body=Acceptance,
            returns=PinLine,
            problems=(404, 409),
            tag=PINS_TAG,
        ),
    )


class PinOperations:
    """What is trusted."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def list_pins(self, request: ApiRequest) -> PinPage:
        query: PinQuery = request.query
        bounds = build_managed_scope(request.principal, self._router.profiles)
        kept = await self._router.store.pins.list_all()
        held = self._get_quarantined()
        waiting = {key: entry.pin for key, entry in held.items() if entry.new}
        pins = {
            key: pin
            for key, pin in {**waiting, **kept}.items()
            if not is_server_key(key) and _covers_pin(bounds, key)
        }
        offered = {card.key for card in (*self._router.tools.cards, *self._router.catalog.disabled.cards)}

        def find() -> PinPage:
            states: dict[str, PinState] = {key: _get_pin_state(key, held, offered) for key in pins}
            places = sorted((_build_sort_key(states[key], key), key) for key in pins)
            found = [
                (place, key)
                for place, key in places
                if query.state in (None, states[key]) and (query.before is None or place > query.before)
            ]
            page, last = split_page(found, query.limit)
            items = tuple(_build_pin_line(pins[key], states[key], held.get(key)) for _, key in page)
            return PinPage(items=items, next=None if last is None else last[0])

        return await anyio.to_thread.run_sync(find)

    async def accept_definition(self, request: ApiRequest) -> PinLine:
        wanted: Acceptance = request.body
        server, tool = request.path["server"], request.path["tool"]
        held = self._get_quarantined()
        key = next((key for key in (f"{server}/{tool}", build_tool_key(server, tool)) if key in held), None)
        if key is None or not _covers_pin(build_managed_scope(request.principal, self._router.profiles), key):
            detail = f"No changed definition of {server}/{tool} waits to be accepted."
            raise ApiProblem(404, "Nothing to accept", detail)
        seen = held[key].card.fingerprint
        if wanted.fingerprint != seen:
            detail = f"{key} is not what it was when it was shown. Look at the new difference."
            raise ApiProblem(409, "The definition changed once more", detail, fingerprint=seen)
        pin = await self._router.accept(key, by=request.principal.name, fingerprint=seen)
        return _build_pin_line(pin, "same", None)

    def _get_quarantined(self) -> dict[str, Quarantined]:
        return {entry.card.key: entry for entry in self._router.catalog.quarantined}


def _covers_pin(bounds: ManagedScope, key: str) -> bool:
    return bounds.covers_tool(key.partition("/")[0], key)


def _get_pin_state(key: str, quarantined: Mapping[str, Quarantined], offered: set[str]) -> PinState:
    if key in quarantined:
        return "quarantined"
    return "same" if key in offered else "not_seen"


def _build_sort_key(state: PinState, key: str) -> str:
    """Where it stands in the list; also what a page goes on from."""
    return f"{_STATE_ORDER[state]}:{key}"


def _build_pin_line(pin: Pin, state: PinState, quarantined: Quarantined | None) -> PinLine:
    return PinLine(
        key=pin.key,
        state=state,
        fingerprint=pin.fingerprint,
        pinned_at=pin.pinned_at,
        accepted_by=pin.accepted_by,
        change=None if quarantined is None else build_change(quarantined),
    )
