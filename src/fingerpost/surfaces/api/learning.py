"""Feedback and what was learned from it, usage of tools, statistics and eval reports."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.analytics.records import Figures
from fingerpost.errors import CallError, ConfigError
from fingerpost.events import PacketReceived
from fingerpost.frozen import copy_fields, frozen
from fingerpost.policy.rules import is_within_scopes
from fingerpost.records import FeedbackVerdict, JsonObject, Learned, Principal, Right, Scope, UsageProfile
from fingerpost.router import Router
from fingerpost.router.profiles import NO_ACCESS_SCOPE
from fingerpost.surfaces.api.operation import (
    ApiProblem,
    ApiRequest,
    OperationGroup,
    PageLimit,
    RowNumber,
    declare_operation,
    split_page,
)
from fingerpost.surfaces.api.visibility import (
    ManagedScope,
    build_missing_right_problem,
    get_visible_caller,
)

LearnedKind = Literal["corrections", "outcomes", "preferences", "decisions", "thresholds"]
FeedbackName = Annotated[str, Field(min_length=1, max_length=1000)]


@frozen
class FeedbackBody:
    """Feedback: whether the request used the right tool, and which tool would have been right."""

    verdict: Annotated[FeedbackVerdict, Field(strict=False)]
    should_have: Annotated[FeedbackName | None, Field(description="The tool that would have been right")] = (
        None
    )
    tool: Annotated[
        FeedbackName | None, Field(description="The tool that is meant, where several were used")
    ] = None
    comment: Annotated[str, Field(max_length=1000)] = ""


@frozen
class FeedbackLine:
    """One person's feedback on one request."""

    packet_id: str
    by: str
    verdict: FeedbackVerdict
    at: datetime
    tool: str | None
    should_have: str | None
    comment: str


_FEEDBACK_PATH: Final = "/api/packets/{packet_id}/feedback"


@frozen
class FeedbackPage:
    """Feedback on a request, newest first. `counts` is whether Fingerpost learns from it."""

    items: tuple[FeedbackLine, ...]
    counts: bool


@frozen
class ForgetBody:
    """What to forget. An empty `what` means every kind; no `person` means all persons."""

    what: Annotated[tuple[LearnedKind, ...], Field(max_length=5, strict=False)] = ()
    person: Annotated[FeedbackName | None, Field(description="Only what was learned about this person")] = (
        None
    )


@frozen
class ForgetResponse:
    """The number of deleted entries."""

    entries: int


class FeedbackOperations(OperationGroup):
    """The operations about feedback and learning."""

    tag = "learning"

    @declare_operation("GET", _FEEDBACK_PATH, problems=(404,), right=None)
    async def get_feedback(self, request: ApiRequest, packet_id: str) -> FeedbackPage:
        """Feedback on one request."""
        own = get_visible_caller(request.principal)
        await self._check_packet(packet_id, own)
        found = await self._router.learning.list_feedback(packet_id)
        seen = tuple(copy_fields(FeedbackLine, one) for one in found if own in (None, one.by))
        return FeedbackPage(items=seen, counts=self._router.settings.flags.learn_from_feedback)

    @declare_operation("POST", _FEEDBACK_PATH, right=Right.USE, problems=(404,))
    async def give_feedback(self, request: ApiRequest, packet_id: str, body: FeedbackBody) -> FeedbackLine:
        """Give feedback on the tool of a request. New feedback replaces earlier feedback."""
        principal = request.principal
        await self._check_packet(packet_id, _resolve_person(principal))
        try:
            feedback = await self._router.learning.give_feedback(
                packet_id,
                body.verdict,
                by=principal.name,
                tool=body.tool,
                should_have=body.should_have,
                comment=body.comment,
                scopes=self._get_scopes(principal, body.should_have),
            )
        except (CallError, ConfigError) as wrong:
            detail = f"{str(wrong)[:1].upper()}{str(wrong)[1:]}. {wrong.hint or ''}".strip()
            raise ApiProblem(422, "Invalid feedback", detail) from wrong
        return copy_fields(FeedbackLine, feedback)

    def _get_scopes(self, principal: Principal, named: str | None) -> tuple[Scope, ...]:
        """Return the scopes for the named tool. With several profiles, use the first that covers it."""
        access_scopes = ManagedScope.from_principal(principal, self._router.profiles).access_scopes
        card = None if named is None else self._router.tools.find(named)
        if card is not None:
            effect = card.effect.value
            access_scopes = tuple(
                access_scope
                for access_scope in access_scopes
                if is_within_scopes(access_scope.scopes, card.server, card.key, effect)
            )
        return access_scopes[0].scopes if access_scopes else (NO_ACCESS_SCOPE,)

    @declare_operation("GET", "/api/learned", right=None)
    async def get_learned(self, request: ApiRequest) -> Learned:
        """What was learned from use and feedback; texts of other people need `watch`."""
        return await self._router.learning.build_overview(person=get_visible_caller(request.principal))

    @declare_operation("POST", "/api/learned/forget", right=None)
    async def forget_learned(self, request: ApiRequest, body: ForgetBody) -> ForgetResponse:
        """Delete what was learned: your own part with `use`, everything with `manage`."""
        principal = request.principal
        own = _resolve_person(principal)
        if own is not None and body.person != own:
            raise build_missing_right_problem(Right.MANAGE)
        try:
            gone = await self._router.learning.forget(*body.what, by=principal.name, person=body.person)
        except ConfigError as wrong:
            raise ApiProblem(422, "This cannot be deleted", f"{wrong}. {wrong.hint or ''}".strip()) from wrong
        return ForgetResponse(entries=gone)

    async def _check_packet(self, packet_id: str, caller: str | None) -> None:
        """Raise `ApiProblem` if the request does not exist or belongs to another caller."""
        journal = self._router.store.journal
        await journal.flush()
        found = await journal.list_events(packet_id=packet_id, kinds=(PacketReceived.kind,), limit=1)
        event = found[0].event if found else None
        if not isinstance(event, PacketReceived) or caller not in (None, event.packet.header.caller):
            detail = f"There is no request {packet_id[:80]!r} that you may see."
            raise ApiProblem(404, "There is no such request", detail)


def _resolve_person(principal: Principal) -> str | None:
    """Return None for a manager of all persons' data, else the principal's name. Raises `ApiProblem`."""
    if principal.may(Right.MANAGE):
        return None
    if principal.may(Right.USE):
        return principal.name
    raise build_missing_right_problem(Right.USE)


MAX_HOURS: Final = 24 * 366
NO_EVALS_HINT: Final = (
    "No evaluation is stored yet. `fingerpost eval own` makes a set from your own requests; "
    "`fingerpost eval --help` says how to go on."
)


@frozen
class UsagePage:
    """Statistics of every tool that was called, sorted by key."""

    items: tuple[UsageProfile, ...]
    next: str | None = None


@frozen
class InsightQuery:
    """The period (in hours until now) and its steps."""

    hours: Annotated[float, Field(gt=0, le=MAX_HOURS)] = 24.0
    step: Literal["auto", "minute", "hour", "day"] = "auto"


@frozen
class EvalQuery:
    """Page of evaluation reports."""

    limit: PageLimit = 50
    before: RowNumber | None = None


@frozen
class EvalLine:
    """One report, in the format of `fingerpost eval report --json`."""

    seq: int
    at: datetime
    name: str
    report: JsonObject


@frozen
class EvalPage:
    """One page of reports, newest first. If there are none, `hint` explains how to create one."""

    items: tuple[EvalLine, ...]
    next: int | None = None
    hint: str = ""


class StatisticsOperations(OperationGroup):
    """The operations about figures, usage and eval reports."""

    tag = "figures"

    def __init__(self, router: Router, ledger: JournalReader) -> None:
        super().__init__(router)
        self._ledger = ledger

    @declare_operation("GET", "/api/usage", right=Right.WATCH)
    async def list_usage(self, request: ApiRequest) -> UsagePage:
        """Statistics of past calls by tool: count, duration, size."""
        bounds = ManagedScope.from_principal(request.principal, self._router.profiles)
        used = await self._router.store.usage.get_profiles()
        return UsagePage(items=tuple(profile for key, profile in used.items() if bounds.covers_tool(key)))

    @declare_operation("GET", "/api/insight", right=Right.WATCH, covers_all=True)
    async def get_insight(self, request: ApiRequest, query: InsightQuery) -> Figures:
        """Figures over time."""
        keys = [card.key for card in self._router.tools.cards]
        return await self._ledger.get_figures(hours=query.hours, step=query.step, tools=keys)

    @declare_operation("GET", "/api/evals", right=Right.WATCH, covers_all=True)
    async def list_evals(self, request: ApiRequest, query: EvalQuery) -> EvalPage:
        """Stored reports of `fingerpost eval`."""
        found = await self._router.store.evals.list_newest(limit=query.limit + 1, before=query.before)
        page, last = split_page(found, query.limit)
        return EvalPage(
            items=tuple(copy_fields(EvalLine, kept) for kept in page),
            next=None if last is None else last.seq,
            hint="" if page or query.before else NO_EVALS_HINT,
        )
