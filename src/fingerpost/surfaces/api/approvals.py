"""Pending calls: the list, decisions, and resuming the requests that wait for them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import zip_longest
from typing import Annotated, Final, Literal, cast

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from pydantic import Field

from fingerpost.call.approvals import DecisionResult, explain_once_only, get_target_names, is_uncertain_read
from fingerpost.errors import FingerpostError, StoreError
from fingerpost.events import CallRuled, PacketReceived, RouteBegan, RouteEnded
from fingerpost.frozen import copy_fields, frozen
from fingerpost.records import (
    Call,
    Decision,
    Json,
    JsonObject,
    Pending,
    Principal,
    Right,
    RouteOutcome,
    utc_now,
)
from fingerpost.redaction import MASK, find_secret_paths, scrub, scrub_json
from fingerpost.router import Router
from fingerpost.surfaces.api.operation import ApiProblem, ApiRequest, OperationGroup, declare_operation
from fingerpost.surfaces.api.tools import DefinitionChange, get_title
from fingerpost.surfaces.api.visibility import ManagedScope, get_visible_caller
from fingerpost.surfaces.http.access import AccessScope, resolve_access_scope
from fingerpost.surfaces.http.asgi import HttpError

log = logging.getLogger("fingerpost.api")

CHECK_INTERVAL_S: Final = 1.0
MAX_EXPIRED_AGE: Final = timedelta(days=1)  # for calls that expired while no process was running
_NO_REQUEST_MESSAGE = "The call belongs to no request: it runs when its client repeats it."
_CLIENT_RESUMES_MESSAGE = (
    "The program that asked goes on with it: at once where it still waits, else when it next sends a message "
    "(within {seconds:.0f} s of an approval; later it has to ask again)."
)
_UNKNOWN_CALLER_MESSAGE = "The caller of the request has no access any more: its key is not valid."


class ApprovalResumer:
    """Resumes requests in the background, each packet only once at a time."""

    def __init__(self, router: Router, tasks: TaskGroup) -> None:
        self._router = router
        self._tasks = tasks
        self._resuming_packets: set[str] = set()

    async def start_resuming(self, pending: Pending) -> str | None:
        """Resume every request that waits for this call. Return the reason if none is resumed."""
        if pending.packet_id is None:
            return _NO_REQUEST_MESSAGE
        notes = [await self._start_packet(pending, packet_id) for packet_id in pending.packets]
        return None if None in notes else notes[0]

    async def _start_packet(self, pending: Pending, packet_id: str) -> str | None:
        entries = await self._router.store.journal.list_events(packet_id=packet_id, kinds=(RouteBegan.kind,))
        starts = [entry.event for entry in entries if isinstance(entry.event, RouteBegan)]
        if any(event.own_terms for event in starts) and pending.decision is not Decision.EXPIRED:
            return _CLIENT_RESUMES_MESSAGE.format(seconds=self._router.settings.call.grant_seconds)
        access_scope = await self._resolve_access_scope(pending, starts)
        if access_scope is None:
            return _UNKNOWN_CALLER_MESSAGE
        if packet_id not in self._resuming_packets:
            self._resuming_packets.add(packet_id)
            self._tasks.start_soon(self._resume_packet, pending, packet_id, access_scope)
        return None

    async def end_expired(self) -> None:
        """End requests of all callers if their call expired without a decision. Runs until cancelled."""
        ended: set[str] = set()
        while True:
            try:
                for pending in await self._router.store.approvals.list_expired(
                    since=utc_now() - MAX_EXPIRED_AGE
                ):
                    if pending.pending_id not in ended:
                        ended.add(pending.pending_id)
                        await self._end_pending(pending)
            except StoreError as error:  # the store may recover
                log.warning("expired calls could not be read: %s", error)
            await anyio.sleep(CHECK_INTERVAL_S)

    async def _end_pending(self, pending: Pending) -> None:
        for packet_id in pending.packets:
            ends = await self._router.store.journal.list_events(packet_id=packet_id, kinds=(RouteEnded.kind,))
            last = ends[-1].event if ends else None
            if isinstance(last, RouteEnded) and last.outcome is RouteOutcome.WAITING:
                await self._start_packet(pending, packet_id)

    async def _resume_packet(self, pending: Pending, packet_id: str, access_scope: AccessScope) -> None:
        try:
            await self._router.resume(
                pending.pending_id,
                packet_id=packet_id,
                caller=pending.caller,
                profile=access_scope.profile,
                scopes=access_scope.scopes,
            )
        except FingerpostError as error:
            log.warning("%s could not go on after %s was decided: %s", packet_id, pending.pending_id, error)
        except Exception:
            log.exception("%s could not go on after %s was decided", packet_id, pending.pending_id)
        finally:
            self._resuming_packets.discard(packet_id)

    async def _resolve_access_scope(
        self, pending: Pending, starts: Sequence[RouteBegan]
    ) -> AccessScope | None:
        """Return the scope of the caller of the request, or None if it has no access any more."""
        caller = await self._find_caller(pending.caller)
        if caller is None:
            return None
        try:
            return resolve_access_scope(caller, starts[-1].profile if starts else None, self._router.profiles)
        except HttpError:
            return None

    async def _find_caller(self, name: str | None) -> Principal | None:
        """Return the caller with its current limits. The journal adds the limits it had at the request."""
        if name is None or name == "local" or name.startswith("token:"):
            return Principal(name=name or "")
        now = utc_now()
        for key in await self._router.store.keys.list_all():
            if key.name == name and key.is_valid(now):
                return Principal(name=name, kind="key", scope=key.scope, profiles=key.profiles)
        return None


_ONE_PATH: Final = "/api/approvals/{pending_id}"
MAX_APPROVALS_PER_PAGE: Final = 100
MAX_PROMPT_LENGTH: Final = 500
MAX_SCANNED: Final = 1000  # per page
_SCAN_BATCH: Final = 101

ApprovalState = Literal["waiting", "decided", "all"]
DecisionReason = Annotated[str | None, Field(max_length=2000, description="Sent to the model, and stored")]

_OWN_CALL_MESSAGE = (
    "You asked for this call yourself. Another person has to approve it: give them a key with "
    "the right `approve`, or approve it at the machine itself."
)
_NOT_ALLOWED_MESSAGES: Final = {
    True: "To decide, sign in to the console with the link that `fingerpost console` prints.",
    False: "Your key does not give you the right `approve`.",
}
_OUT_OF_SCOPE_MESSAGE = (
    "With these arguments the call is outside the limits of your key. Leave them unchanged, or have "
    "another person approve it."
)

_NOT_MANAGER_MESSAGE = (
    "To say that a tool only reads takes the right `manage`. Approve the call without `only_reads`."
)
_NOT_UNCERTAIN_MESSAGE = (
    "This call is not asked about because its tool may do more than read, or the tool has changed since. "
    "Approve it without `only_reads`."
)


_MASKED_MESSAGE = (
    f"The arguments hold the mask {MASK} in the place of a value, as lists show it. Read this one call "
    "(GET /api/approvals/ID) for its exact arguments and edit those."
)


@frozen
class ApprovalQuery:
    """Filter and page of pending calls."""

    state: Annotated[ApprovalState, Field(description="Waiting calls, decided calls, or both")] = "waiting"
    limit: Annotated[int, Field(ge=1, le=MAX_APPROVALS_PER_PAGE, description="Maximum per page")] = 50
    before: Annotated[str | None, Field(max_length=100, description="`next` of the previous page")] = None


@frozen
class ApproveBody:
    """Approve this exact call, the call with other arguments, or also similar calls in this conversation."""

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
    only_reads: Annotated[
        bool,
        Field(
            description="Also say that this tool only reads, so that its calls are not asked about again "
            "(`may_mark_read_only`; takes the right `manage`)"
        ),
    ] = False
    reason: DecisionReason = None
    resume: Annotated[bool, Field(description="Continue the request it belongs to")] = True


@frozen
class RejectBody:
    """Reject this call."""

    reason: DecisionReason = None
    resume: Annotated[bool, Field(description="Continue the request it belongs to")] = True


@frozen
class ApprovalPacket:
    """The request to which the call belongs."""

    packet_id: str
    prompt: str


@frozen
class ApprovalView(Pending):
    """A call that needs or needed an approval.

    A reader who may decide gets the exact arguments when requesting this single call. Otherwise, and after
    the decision, values that look like secrets are masked. Paths are JSON Pointers.
    """

    title: str
    rule: str | None  # the policy rule that requires the approval
    looks_secret: tuple[str, ...]  # paths of arguments that look like secrets, masked or not
    masked: tuple[str, ...]  # paths that are masked in this view
    arguments_schema: JsonObject | None  # None: the tool does not exist now
    definition_change: DefinitionChange | None  # the definition differs from the pinned one
    # Arguments that are equal in all calls covered by `for_conversation`.
    conversation_target: tuple[str, ...] | None
    outdated: bool  # the tool changed since the request: an approval will be asked for again
    expires_in_seconds: float
    packet: ApprovalPacket | None
    may_decide: bool  # the reader may approve it
    may_mark_read_only: bool  # the reader may also say that its tool only reads (`only_reads`)
    why_not: str | None


@frozen
class ApprovalPage:
    """One page of calls, newest first. `next` is the `before` of the next page."""

    items: tuple[ApprovalView, ...]
    next: str | None = None


@frozen
class DecisionResponse:
    """The state of the call after the decision."""

    approval: ApprovalView
    stood: bool  # this decision counts; False: decided before, or expired
    resumed: bool  # the request continues
    note: str | None = None


class ApprovalOperations(OperationGroup):
    """The operations about approvals."""

    tag = "approvals"

    def __init__(self, router: Router, resumer: ApprovalResumer) -> None:
        super().__init__(router)
        self._resumer = resumer

    @declare_operation("GET", "/api/approvals", right=None)
    async def list_approvals(self, request: ApiRequest, query: ApprovalQuery) -> ApprovalPage:
        """Waiting and decided calls, newest first."""
        found, following = await self._find_visible(query, request.principal)
        items = [await self._build_view(one, request.principal) for one in found]
        return ApprovalPage(items=tuple(items), next=following)

    @declare_operation("GET", _ONE_PATH, problems=(404,), right=None)
    async def get_approval(self, request: ApiRequest, pending_id: str) -> ApprovalView:
        """One waiting or decided call."""
        pending = await self._get_pending(request.principal, pending_id)
        return await self._build_view(pending, request.principal, with_details=True)

    @declare_operation("POST", f"{_ONE_PATH}/approve", right=Right.APPROVE, problems=(404, 409))
    async def approve(self, request: ApiRequest, pending_id: str, body: ApproveBody) -> DecisionResponse:
        """Approve a call. The first decision counts."""
        pending = await self._get_pending(request.principal, pending_id)
        if (why := _explain_not_allowed(request.principal, pending)) is not None:
            raise ApiProblem(403, "You may not approve this", why)
        if body.only_reads and pending.decision is Decision.WAITING:
            self._check_read_only(request.principal, pending)
        edited = None
        if body.arguments is not None and pending.decision is Decision.WAITING:
            edited = await self._build_edited_call(request.principal, pending, body.arguments)
        return await self._record_decision(
            request, body, pending, edited=edited, for_conversation=body.for_conversation
        )

    @declare_operation("POST", f"{_ONE_PATH}/reject", right=Right.APPROVE, problems=(404,))
    async def reject(self, request: ApiRequest, pending_id: str, body: RejectBody) -> DecisionResponse:
        """Reject a call. The first decision counts."""
        pending = await self._get_pending(request.principal, pending_id)
        return await self._record_decision(request, body, pending)

    async def _record_decision(
        self,
        request: ApiRequest,
        wanted: ApproveBody | RejectBody,
        pending: Pending,
        *,
        edited: Call | None = None,
        for_conversation: bool = False,
    ) -> DecisionResponse:
        settled = DecisionResult(pending=pending, counted=False)
        only_once = explain_once_only(pending)
        if pending.decision is Decision.WAITING:
            settled = await self._router.calls.approvals.settle_decision(
                pending.pending_id,
                Decision.APPROVED if isinstance(wanted, ApproveBody) else Decision.REJECTED,
                by=request.principal.name,
                reason=wanted.reason,
                edited=edited,
                scope="conversation" if for_conversation and only_once is None else "once",
            )
        decided_call, stood = settled.pending, settled.counted
        if stood and isinstance(wanted, ApproveBody) and wanted.only_reads:
            assert pending.definition_fingerprint is not None
            await self._router.say_only_reads(
                pending.tool, by=request.principal.name, fingerprint=pending.definition_fingerprint
            )
        note = None if stood else _explain_decision(decided_call)
        resumed = False
        if stood and wanted.resume:
            note = await self._resumer.start_resuming(decided_call)
            resumed = note is None
        if stood and for_conversation and only_once is not None:
            note = f"It is approved for this one call: {only_once}." + ("" if note is None else f" {note}")
        view = await self._build_view(decided_call, request.principal)
        return DecisionResponse(approval=view, stood=stood, resumed=resumed, note=note)

    def _check_read_only(self, principal: Principal, pending: Pending) -> None:
        """Raise `ApiProblem` unless the principal may say that the tool of this call only reads."""
        if not principal.may(Right.MANAGE):
            raise ApiProblem(403, "You may not mark a tool as read-only", _NOT_MANAGER_MESSAGE)
        if not is_uncertain_read(pending, self._router.tools.get(pending.tool)):
            raise ApiProblem(409, "This call cannot be marked as read-only", _NOT_UNCERTAIN_MESSAGE)

    async def _build_edited_call(self, principal: Principal, pending: Pending, arguments: JsonObject) -> Call:
        if _has_new_mask(arguments, pending.arguments):
            raise ApiProblem(422, "A mask is not a value", _MASKED_MESSAGE)
        edited = await self._router.calls.build_edited_call(pending, arguments)
        if not ManagedScope.from_principal(principal, self._router.profiles).covers_call(
            edited.tool, edited.effect
        ):
            raise ApiProblem(403, "You may not approve this", _OUT_OF_SCOPE_MESSAGE)
        return edited

    async def _get_pending(self, principal: Principal, pending_id: str) -> Pending:
        """Return the call if the principal may see it. Raises `ApiProblem`."""
        found = await self._router.calls.approvals.get(pending_id)
        if found is None or not self._is_visible(principal, found):
            detail = f"No call {pending_id[:80]!r} waits or waited that you may see."
            raise ApiProblem(404, "There is no such call", detail)
        return found

    async def _find_visible(
        self, wanted: ApprovalQuery, principal: Principal
    ) -> tuple[list[Pending], str | None]:
        """Return the calls that this principal may see, and the start of the next page."""
        get_visible_caller(principal, Right.APPROVE)  # raises if the principal may see none
        decided = {"waiting": False, "decided": True, "all": None}[wanted.state]
        found: list[Pending] = []
        last, looked_at = wanted.before, 0
        while looked_at < MAX_SCANNED:
            some = await self._router.store.approvals.list_recent(
                decided=decided, limit=_SCAN_BATCH, before=last
            )
            for one in some:
                if len(found) == wanted.limit:
                    return found, last
                last = one.pending_id
                if self._is_visible(principal, one):
                    found.append(one)
            if len(some) < _SCAN_BATCH:
                return found, None
            looked_at += len(some)
        return found, last

    def _is_visible(self, principal: Principal, pending: Pending) -> bool:
        """Return whether the principal may see the call. With the right to watch or approve it sees all calls
        within its scope, otherwise only its own. Raises `ApiProblem` if it may see none.
        """
        own = get_visible_caller(principal, Right.APPROVE)
        if own is not None:
            return pending.caller == own
        return ManagedScope.from_principal(principal, self._router.profiles).covers_call(
            pending.tool, pending.effect
        )

    async def _build_view(
        self, pending: Pending, principal: Principal, *, with_details: bool = False
    ) -> ApprovalView:
        card = self._router.tools.get(pending.tool)
        changed = next(
            (one for one in self._router.catalog.quarantined if one.card.key == pending.tool), None
        )
        change = (
            None if changed is None else await anyio.to_thread.run_sync(DefinitionChange.from_entry, changed)
        )
        known = card or (None if changed is None else changed.card)
        rule, packet = await self._find_origin(pending)
        why = None if principal.may(Right.APPROVE) else _NOT_ALLOWED_MESSAGES[principal.kind == "local"]
        why = why or _explain_not_allowed(principal, pending)
        may_decide = why is None and pending.decision is Decision.WAITING
        exact = with_details and may_decide
        edited = pending.edited_arguments
        look_secret = find_secret_paths(pending.arguments)
        schema = None if known is None else known.definition.get("inputSchema")
        return copy_fields(
            ApprovalView,
            pending,
            arguments=pending.arguments if exact else scrub_json(pending.arguments),
            edited_arguments=None if edited is None else scrub_json(edited),
            reason=scrub(pending.reason),
            title=pending.tool if known is None else get_title(known.definition, known.name),
            rule=rule,
            looks_secret=look_secret,
            masked=() if exact else look_secret,
            arguments_schema=schema if isinstance(schema, dict) else None,
            definition_change=change,
            conversation_target=get_target_names(pending),
            outdated=card is not None and card.fingerprint != pending.definition_fingerprint,
            expires_in_seconds=max(0.0, round((pending.expires - utc_now()).total_seconds(), 3)),
            packet=packet,
            may_decide=may_decide,
            may_mark_read_only=may_decide
            and principal.may(Right.MANAGE)
            and is_uncertain_read(pending, card),
            why_not=why,
        )

    async def _find_origin(self, pending: Pending) -> tuple[str | None, ApprovalPacket | None]:
        """Return the rule that requires the approval, and the request, from the journal."""
        subject = pending.packet_id or pending.call_id
        if subject is None:
            return None, None
        kinds = (PacketReceived.kind, CallRuled.kind)
        rule, packet = None, None
        for entry in reversed(await self._router.store.journal.list_events(packet_id=subject, kinds=kinds)):
            event = entry.event
            if isinstance(event, CallRuled) and event.call_id == pending.call_id:
                rule = event.rule
            elif isinstance(event, PacketReceived) and pending.packet_id is not None:
                prompt = event.packet.content.original_prompt[:MAX_PROMPT_LENGTH]
                packet = ApprovalPacket(packet_id=pending.packet_id, prompt=prompt)
        return rule, packet


def _explain_not_allowed(principal: Principal, pending: Pending) -> str | None:
    """Return why the principal may not approve its own call, or None. Local callers may."""
    return _OWN_CALL_MESSAGE if principal.kind != "local" and pending.caller == principal.name else None


def _has_new_mask(edited: Json, original: Json) -> bool:
    """Return whether edited arguments contain a mask of a view that the original has not."""
    if isinstance(edited, Mapping):
        entries: JsonObject = original if isinstance(original, Mapping) else {}
        return any(_has_new_mask(value, entries.get(name)) for name, value in edited.items())
    if isinstance(edited, list | tuple):
        items = cast("Sequence[Json]", original) if isinstance(original, list | tuple) else ()
        pairs = zip_longest(cast("Sequence[Json]", edited), items[: len(edited)])
        return any(_has_new_mask(item, before) for item, before in pairs)
    return isinstance(edited, str) and MASK in edited and edited != original


def _explain_decision(pending: Pending) -> str:
    if pending.decision is Decision.EXPIRED:
        return "It expired before a decision."
    return f"{pending.decided_by or 'Another person'} decided first: it was {pending.decision}."
