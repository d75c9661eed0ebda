"""Feedback and what was learned from it, usage of tools, statistics and eval reports."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.analytics.records import Figures
from fingerpost.errors import CallError, ConfigError
from fingerpost.events import PacketReceived
from fingerpost.frozen import frozen
from fingerpost.policy.rules import is_within_scopes
from fingerpost.records import (
    Feedback,
    FeedbackVerdict,
    JsonObject,
    Learned,
    Principal,
    Right,
    Scope,
    UsageProfile,
)
from fingerpost.router import Router
from fingerpost.router.profiles import NO_ACCESS_SCOPE
from fingerpost.surfaces.api.operation import ApiOperation, ApiProblem, ApiRequest, PageLimit, RowNumber
from fingerpost.surfaces.api.visibility import (
    ManagedScope,
    build_missing_right_problem,
    check_unscoped,
    get_visible_caller,
)

LEARNING_TAG: Final = "learning"
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


@frozen
class FeedbackPage:
    """Feedback on a request, newest first. `counts` is whether Fingerpost learns from it."""

    items: tuple[FeedbackLine, ...]
    counts: bool


@frozen
class ForgetBody:
    """What to forget. An empty `what` means every kind; no `person` means all persons."""

    what: Annotated[tuple[LearnedKind, ...], Field(max_length=5, strict=False)] = ()
    person: Annotated[FeedbackName | None, Field(description="Only what this person said and is used to")] = (
        None
    )


@frozen
class ForgetResponse:
    """The number of deleted entries."""

    entries: int


def build_feedback_operations(router: Router) -> tuple[ApiOperation, ...]:
    operations = FeedbackOperations(router)
    return (
        ApiOperation(
            method="GET",
            path="/api/packets/{packet_id}/feedback",
            name="get_feedback",
            summary="What was said of one request",
            right=None,
            answer=operations.list_feedback,
            returns=FeedbackPage,
            problems=(404,),
            tag=LEARNING_TAG,
        ),
        ApiOperation(
            method="POST",
            path="/api/packets/{packet_id}/feedback",
            name="give_feedback",
            summary="Give feedback on the tool of a request. New feedback replaces earlier feedback",
            right=Right.USE,
            answer=operations.give_feedback,
            body=FeedbackBody,
            returns=FeedbackLine,
            problems=(404,),
            tag=LEARNING_TAG,
        ),
        ApiOperation(
            method="GET",
            path="/api/learned",
            name="get_learned",
            summary="What was learned from use and feedback; others' words are not shown without `watch`",
            right=None,
            answer=operations.get_learned,
            returns=Learned,
            tag=LEARNING_TAG,
        ),
        ApiOperation(
            method="POST",
            path="/api/learned/forget",
            name="forget_learned",
            summary="Forget what was learned: one's own part with `use`, everybody's with `manage`",
            right=None,
            answer=operations.forget_learned,
            body=ForgetBody,
            returns=ForgetResponse,
            tag=LEARNING_TAG,
        ),
    )


class FeedbackOperations:
    """The operations about feedback and learning."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def list_feedback(self, request: ApiRequest) -> FeedbackPage:
        packet_id = request.path["packet_id"]
        own = get_visible_caller(request.principal)
        await self._check_packet(packet_id, own)
        found = await self._router.learning.list_feedback(packet_id)
        seen = tuple(_build_line(one) for one in found if own in (None, one.by))
        return FeedbackPage(items=seen, counts=self._router.settings.flags.learn_from_feedback)

    async def give_feedback(self, request: ApiRequest) -> FeedbackLine:
        body: FeedbackBody = request.body
        principal, packet_id = request.principal, request.path["packet_id"]
        await self._check_packet(packet_id, _resolve_person(principal, Right.MANAGE))
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
        return _build_line(feedback)

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

    async def get_learned(self, request: ApiRequest) -> Learned:
        return await self._router.learning.build_overview(person=get_visible_caller(request.principal))

    async def forget_learned(self, request: ApiRequest) -> ForgetResponse:
        wanted: ForgetBody = request.body
        principal = request.principal
        own = _resolve_person(principal, Right.MANAGE)
        if own is not None and wanted.person != own:
            raise build_missing_right_problem(Right.MANAGE)
        try:
            gone = await self._router.learning.forget(*wanted.what, by=principal.name, person=wanted.person)
        except ConfigError as wrong:
            raise ApiProblem(
                422, "This cannot be forgotten", f"{wrong}. {wrong.hint or ''}".strip()
            ) from wrong
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


def _resolve_person(principal: Principal, right: Right) -> str | None:
    """Return None for all persons, or the principal's own name. Raises `ApiProblem` without the right to use
    tools.
    """
    if principal.may(right):
        return None
    if principal.may(Right.USE):
        return principal.name
    raise build_missing_right_problem(Right.USE)


def _build_line(feedback: Feedback) -> FeedbackLine:
    return FeedbackLine(
        packet_id=feedback.packet_id,
        by=feedback.by,
        verdict=feedback.verdict,
        at=feedback.at,
        tool=feedback.tool,
        should_have=feedback.should_have,
        comment=feedback.comment,
    )


FIGURES_TAG: Final = "figures"
MAX_HOURS: Final = 24 * 366
NO_EVALS_HINT: Final = (
    "No eval was kept yet. `fingerpost eval own` makes a set from your own requests; "
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


def build_statistics_operations(router: Router, ledger: JournalReader) -> tuple[ApiOperation, ...]:
    async def list_usage(request: ApiRequest) -> UsagePage:
        bounds = ManagedScope.from_principal(request.principal, router.profiles)
        used = await router.store.usage.get_profiles()
        return UsagePage(
            items=tuple(
                profile for key, profile in used.items() if bounds.covers_tool(key.partition("/")[0], key)
            )
        )

    async def get_insight(request: ApiRequest) -> Figures:
        check_unscoped(request.principal)
        query: InsightQuery = request.query
        keys = [card.key for card in router.tools.cards]
        return await ledger.get_figures(hours=query.hours, step=query.step, tools=keys)

    async def list_evals(request: ApiRequest) -> EvalPage:
        check_unscoped(request.principal)
        query: EvalQuery = request.query
        found = await router.store.evals.list_newest(limit=query.limit + 1, before=query.before)
        items = tuple(
            EvalLine(seq=kept.seq, at=kept.at, name=kept.name, report=kept.report)
            for kept in found[: query.limit]
        )
        follows = items[-1].seq if len(found) > query.limit else None
        return EvalPage(items=items, next=follows, hint="" if items or query.before else NO_EVALS_HINT)

    def build_read_operation(path: str, name: str, summary: str, **more: Any) -> ApiOperation:
        return ApiOperation(
            method="GET", path=path, name=name, summary=summary, right=Right.WATCH, tag=FIGURES_TAG, **more
        )

    return (
        build_read_operation(
            "/api/usage",
            "list_usage",
            "What past calls of each tool teach: how often, how long, how much",
            answer=list_usage,
            returns=UsagePage,
        ),
        build_read_operation(
            "/api/insight",
            "get_insight",
            "Figures over time",
            answer=get_insight,
            query=InsightQuery,
            returns=Figures,
        ),
        build_read_operation(
            "/api/evals",
            "list_evals",
            "Kept reports of `fingerpost eval`",
            answer=list_evals,
            query=EvalQuery,
            returns=EvalPage,
        ),
    )
