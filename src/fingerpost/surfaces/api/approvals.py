"""Calls that wait for a person: the inbox, and the person's word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import zip_longest
from typing import Annotated, Final, Literal, cast

import anyio.to_thread
from pydantic import Field

from fingerpost.call.approvals import Settled, target_names, why_only_once
from fingerpost.events import CallRuled, PacketReceived
from fingerpost.frozen import frozen
from fingerpost.records import Call, Decision, Json, JsonObject, Pending, Principal, Right, utc_now
from fingerpost.redaction import MASK, scrub, scrub_json, secret_paths
from fingerpost.router import Router
from fingerpost.surfaces.api.asking import title_of
from fingerpost.surfaces.api.operation import ApiRequest, Operation, Problem
from fingerpost.surfaces.api.resources.bounds import bounds_of
from fingerpost.surfaces.api.resources.changes import DefinitionChange, change_of
from fingerpost.surfaces.api.resuming import Resuming
from fingerpost.surfaces.api.sight import only_of

MOST_ON_A_PAGE: Final = 100
PROMPT_START: Final = 500
MOST_LOOKED_AT: Final = 1000  # for one page
_SOME: Final = 101

State = Literal["waiting", "decided", "all"]
Reason = Annotated[str | None, Field(max_length=2000, description="Told to the model, and kept")]

_OWN = (
    "You asked for this call yourself. Somebody else has to approve it: give them a key with "
    "the right `approve`, or approve it at the machine itself."
)
_NOT_ALLOWED: Final = {
    True: "To decide, sign in to the console with the link that `fingerpost console` prints.",
    False: "Your key does not give you the right `approve`.",
}
_OUTSIDE = (
    "With these arguments the call does what lies outside of your key's bounds. Leave it as it was asked "
    "for, or have somebody else approve it."
)


_MASKED = (
    f"The arguments hold the mask {MASK} in the place of a value, as lists show it. Read this one call "
    "(GET /api/approvals/ID) for its exact arguments and edit those."
)


@frozen
class WantedApprovals:
    """Which calls are wanted."""

    state: Annotated[State, Field(description="Those that wait, those that do not any more, or both")] = (
        "waiting"
    )
    limit: Annotated[int, Field(ge=1, le=MOST_ON_A_PAGE, description="Most on a page")] = 50
    before: Annotated[str | None, Field(max_length=100, description="`next` of the page before")] = None


@frozen
class Approve:
    """Yes: to exactly this call, to these arguments instead, or to its kind in this conversation."""

    for_conversation: Annotated[
        bool,
        Field(
            description="Also its caller's further calls of this tool on the same target "
            "(`conversation_target`) in this conversation, for a while"
        ),
    ] = False
    arguments: Annotated[
        dict[str, Json] | None,
        Field(description="All arguments, edited. They run as they are sent; a mask in them is refused"),
    ] = None
    reason: Reason = None
    resume: Annotated[bool, Field(description="Go on with the request it belongs to")] = True


@frozen
class Reject:
    """No."""

    reason: Reason = None
    resume: Annotated[bool, Field(description="Go on with the request it belongs to")] = True


@frozen
class PacketOf:
    """The request a call belongs to."""

    packet_id: str
    prompt: str


@frozen
class ApprovalView(Pending):
    """A call that waits or waited.

    Who may decide it and asks for this one call gets its arguments exactly as they would run. For all
    others, in lists and once it is decided, what looks like a secret is masked. Paths are JSON Pointers.
    """

    title: str
    rule: str | None  # of the policy, that had it ask
    looks_secret: tuple[str, ...]  # arguments that look like a secret, masked here or not
    masked: tuple[str, ...]  # those that are masked here
    arguments_schema: JsonObject | None  # None: the tool is not there now
    definition_change: DefinitionChange | None  # the tool is not as it was pinned
    conversation_target: tuple[str, ...] | None  # arguments, the same in all that `for_conversation` covers
    outdated: bool  # the tool changed since this was asked: approved, it will be asked about again
    expires_in_seconds: float
    packet: PacketOf | None
    may_decide: bool  # whoever reads this may approve it
    why_not: str | None


@frozen
class ApprovalPage:
    """Newest first. `next` is the `before` of the page behind this one."""

    items: tuple[ApprovalView, ...]
    next: str | None = None


@frozen
class Decided:
    """How the call stands after somebody's word."""

    approval: ApprovalView
    stood: bool  # this was the word that counts; else somebody was first, or it was too late
    resumed: bool  # its request goes on
    note: str | None = None


class Inbox:
    """The operations about approvals."""

    def __init__(self, router: Router, resuming: Resuming) -> None:
        self._router = router
        self._resuming = resuming

    def operations(self) -> tuple[Operation, ...]:
        one = "/api/approvals/{pending_id}"
        return (
            Operation(
                method="GET", path="/api/approvals", name="list_approvals", tag="approvals", right=None,
                summary="Calls that wait for a person, or waited, newest first",
                query=WantedApprovals, returns=ApprovalPage, answer=self.page,
            ),
            Operation(
                method="GET", path=one, name="get_approval", tag="approvals", right=None,
                summary="One call that waits, or waited",
                returns=ApprovalView, problems=(404,), answer=self.one,
            ),
            Operation(
                method="POST", path=f"{one}/approve", name="approve", tag="approvals", right=Right.APPROVE,
                summary="Let a call run; the first word stands",
                body=Approve, returns=Decided, problems=(404,), answer=self.approve,
            ),
            Operation(
                method="POST", path=f"{one}/reject", name="reject", tag="approvals", right=Right.APPROVE,
                summary="Refuse a call; the first word stands",
                body=Reject, returns=Decided, problems=(404,), answer=self.reject,
            ),
        )  # fmt: skip

    async def page(self, request: ApiRequest) -> ApprovalPage:
        wanted: WantedApprovals = request.query
        found, following = await self._found(wanted, request.principal)
        items = [await self._view(one, request.principal) for one in found]
        return ApprovalPage(items=tuple(items), next=following)

    async def one(self, request: ApiRequest) -> ApprovalView:
        return await self._view(await self._pending(request), request.principal, alone=True)

    async def approve(self, request: ApiRequest) -> Decided:
        wanted: Approve = request.body
        pending = await self._pending(request)
        if (why := _why_not(request.principal, pending)) is not None:
            raise Problem(403, "You may not approve this", why)
        edited = None
        if wanted.arguments is not None and pending.decision is Decision.WAITING:
            edited = await self._edited(request.principal, pending, wanted.arguments)
        return await self._decide(request, wanted, pending, edited=edited, widened=wanted.for_conversation)

    async def reject(self, request: ApiRequest) -> Decided:
        wanted: Reject = request.body
        return await self._decide(request, wanted, await self._pending(request))

    async def _decide(
        self,
        request: ApiRequest,
        wanted: Approve | Reject,
        pending: Pending,
        *,
        edited: Call | None = None,
        widened: bool = False,
    ) -> Decided:
        settled = Settled(standing=pending, stood=False)
        only_once = why_only_once(pending)
        if pending.decision is Decision.WAITING:
            settled = await self._router.calls.approvals.settle(
                pending.pending_id,
                Decision.APPROVED if isinstance(wanted, Approve) else Decision.REJECTED,
                by=request.principal.name,
                reason=wanted.reason,
                edited=edited,
                scope="conversation" if widened and only_once is None else "once",
            )
        standing, stood = settled.standing, settled.stood
        note = _standing_note(standing, stood=stood)
        resumed = False
        if stood and wanted.resume:
            note = await self._resuming.start(standing)
            resumed = note is None
        if stood and widened and only_once is not None:
            note = f"It is approved for this one call: {only_once}." + ("" if note is None else f" {note}")
        view = await self._view(standing, request.principal)
        return Decided(approval=view, stood=stood, resumed=resumed, note=note)

    async def _edited(self, principal: Principal, pending: Pending, arguments: JsonObject) -> Call:
        if _adds_mask(arguments, pending.arguments):
            raise Problem(422, "A mask is no value", _MASKED)
        edited = await self._router.calls.edited(pending, arguments)
        if not bounds_of(principal, self._router.profiles).hold_call(edited.tool, edited.effect):
            raise Problem(403, "You may not approve this", _OUTSIDE)
        return edited

    async def _pending(self, request: ApiRequest) -> Pending:
        """The call that is meant, if they may see it."""
        pending_id = request.path["pending_id"]
        found = await self._router.calls.approvals.get(pending_id)
        if found is None or not self._sees(request.principal, found):
            detail = f"No call {pending_id[:80]!r} waits or waited that you may see."
            raise Problem(404, "There is no such call", detail)
        return found

    async def _found(self, wanted: WantedApprovals, principal: Principal) -> tuple[list[Pending], str | None]:
        """Those that this principal may see, and where the page behind them begins."""
        only_of(principal, Right.APPROVE)  # raises for who may see none at all
        decided = {"waiting": False, "decided": True, "all": None}[wanted.state]
        found: list[Pending] = []
        last, looked_at = wanted.before, 0
        while looked_at < MOST_LOOKED_AT:
            some = await self._router.store.approvals.recent(decided=decided, limit=_SOME, before=last)
            for one in some:
                if len(found) == wanted.limit:
                    return found, last
                last = one.pending_id
                if self._sees(principal, one):
                    found.append(one)
            if len(some) < _SOME:
                return found, None
            looked_at += len(some)
        return found, last

    def _sees(self, principal: Principal, pending: Pending) -> bool:
        """Whether they may see it: everything with the right to watch or approve, within their bounds; else
        what they asked for themselves. Raises `Problem` for who may see nothing."""
        own = only_of(principal, Right.APPROVE)
        if own is not None:
            return pending.caller == own
        return bounds_of(principal, self._router.profiles).hold_call(pending.tool, pending.effect)

    # -- views --------------------------------------------------------------------------------------

    async def _view(self, pending: Pending, principal: Principal, *, alone: bool = False) -> ApprovalView:
        card = self._router.tools.get(pending.tool)
        changed = next(
            (one for one in self._router.catalog.quarantined if one.card.key == pending.tool), None
        )
        change = None if changed is None else await anyio.to_thread.run_sync(change_of, changed)
        known = card or (None if changed is None else changed.card)
        rule, packet = await self._background(pending)
        why = None if principal.may(Right.APPROVE) else _NOT_ALLOWED[principal.kind == "local"]
        why = why or _why_not(principal, pending)
        may_decide = why is None and pending.decision is Decision.WAITING
        exact = alone and may_decide
        edited = pending.edited_arguments
        shown = replace(
            pending,
            arguments=pending.arguments if exact else _masked(pending.arguments),
            edited_arguments=None if edited is None else _masked(edited),
            reason=scrub(pending.reason),
        )
        look_secret = secret_paths(pending.arguments)
        return ApprovalView(
            **{field.name: getattr(shown, field.name) for field in fields(Pending)},
            title=pending.tool if known is None else title_of(known.definition, known.name),
            rule=rule,
            looks_secret=look_secret,
            masked=() if exact else look_secret,
            arguments_schema=None if known is None else _schema(known.definition),
            definition_change=change,
            conversation_target=target_names(pending),
            outdated=card is not None and card.fingerprint != pending.definition_fingerprint,
            expires_in_seconds=max(0.0, round((pending.expires - utc_now()).total_seconds(), 3)),
            packet=packet,
            may_decide=may_decide,
            why_not=why,
        )

    async def _background(self, pending: Pending) -> tuple[str | None, PacketOf | None]:
        """Which rule had it ask, and for which request, as the journal has it."""
        subject = pending.packet_id or pending.call_id
        if subject is None:
            return None, None
        kinds = (PacketReceived.kind, CallRuled.kind)
        events = [
            entry.event for entry in await self._router.store.journal.events(packet_id=subject, kinds=kinds)
        ]
        rules = [
            event.rule
            for event in events
            if isinstance(event, CallRuled) and event.call_id == pending.call_id
        ]
        prompts = [
            event.packet.content.original_prompt for event in events if isinstance(event, PacketReceived)
        ]
        packet = None
        if pending.packet_id is not None and prompts:
            packet = PacketOf(packet_id=pending.packet_id, prompt=prompts[0][:PROMPT_START])
        return (rules[0] if rules else None), packet


def _why_not(principal: Principal, pending: Pending) -> str | None:
    """Nobody approves what they asked for themselves, except at the machine, where they could do all."""
    return _OWN if principal.kind != "local" and pending.caller == principal.name else None


def _masked(arguments: JsonObject) -> JsonObject:
    return cast("JsonObject", scrub_json(arguments))


def _adds_mask(edited: Json, original: Json) -> bool:
    """Whether a mask stands where the call as it was asked has none: it was read where secrets are masked."""
    if isinstance(edited, Mapping):
        entries: JsonObject = original if isinstance(original, Mapping) else {}
        return any(_adds_mask(value, entries.get(name)) for name, value in edited.items())
    if isinstance(edited, list | tuple):
        items = cast("Sequence[Json]", original) if isinstance(original, list | tuple) else ()
        pairs = zip_longest(cast("Sequence[Json]", edited), items[: len(edited)])
        return any(_adds_mask(item, before) for item, before in pairs)
    return isinstance(edited, str) and MASK in edited and edited != original


def _standing_note(standing: Pending, *, stood: bool) -> str | None:
    if stood:
        return None
    if standing.decision is Decision.EXPIRED:
        return "Its time was over before anybody decided."
    return f"{standing.decided_by or 'Somebody'} decided first: it was {standing.decision}."


def _schema(definition: JsonObject) -> JsonObject | None:
    schema = definition.get("inputSchema")
    return schema if isinstance(schema, dict) else None
