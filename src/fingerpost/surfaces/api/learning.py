"""Feedback and what was learned from it, usage of tools, statistics and eval reports."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.analytics.records import Figures
from fingerpost.call.visibility import is_within_scopes
from fingerpost.errors import CallError, ConfigError
from fingerpost.events import PacketReceived
from fingerpost.frozen import frozen
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
from fingerpost.router.profiles import NO_PROFILE_SETTINGS
from fingerpost.surfaces.api.operation import ApiOperation, ApiProblem, ApiRequest, PageLimit, RowNumber
from fingerpost.surfaces.api.visibility import (
    build_managed_scope,
    build_missing_right,
    check_unscoped,
    get_visible_caller,
)

LEARNING_TAG: Final = "learning"
LearnedKind = Literal["corrections", "outcomes", "preferences", "decisions", "thresholds"]
FeedbackName = Annotated[str, Field(min_length=1, max_length=1000)]


@frozen
class Word:
    """Whether the request got the right tool, and which one it should have got."""

    verdict: Annotated[FeedbackVerdict, Field(strict=False)]
    should_have: Annotated[FeedbackName | None, Field(description="The tool that would have been right")] = (
        None
    )
    tool: Annotated[
        FeedbackName | None, Field(description="The tool that is meant, where several were used")
    ] = None
    comment: Annotated[str, Field(max_length=1000)] = ""


@frozen
class WordLine:
    """What one person said of one request."""

    packet_id: str
    by: str
    verdict: FeedbackVerdict
    at: datetime
    tool: str | None
    should_have: str | None
    comment: str


@frozen
class WordPage:
    """What was said of a request, newest first. `counts`: it is learned from."""

    items: tuple[WordLine, ...]
    counts: bool


@frozen
class Forgetting:
    """What is to be forgotten: everything where nothing is named, of everybody where nobody is."""

    what: Annotated[tuple[LearnedKind, ...], Field(max_length=5, strict=False)] = ()
    person: Annotated[FeedbackName | None, Field(description="Only what this person said and is used to")] = (
        None
    )


@frozen
class Forgotten:
    """How many entries are gone."""

    entries: int


def build_feedback_operations(router: Router) -> tuple[ApiOperation, ...]:
    words = FeedbackOperations(router)
    return (
        ApiOperation(
            method="GET",
            path="/api/packets/{packet_id}/feedback",
            name="get_feedback",
            summary="What was said of one request",
            right=None,
            answer=words.list_feedback,
            returns=WordPage,
            problems=(404,),
            tag=LEARNING_TAG,
        ),
        ApiOperation(
            method="POST",
            path="/api/packets/{packet_id}/feedback",
            name="give_feedback",
            summary="Say whether a request got the right tool; once more takes the place of the first",
            right=Right.USE,
            answer=words.give_feedback,
            body=Word,
            returns=WordLine,
            problems=(404,),
            tag=LEARNING_TAG,
        ),
        ApiOperation(
            method="GET",
            path="/api/learned",
            name="get_learned",
            summary="What was learned from use and feedback; others' words are not shown without `watch`",
            right=None,
            answer=words.get_learned,
            returns=Learned,
            tag=LEARNING_TAG,
        ),
        ApiOperation(
            method="POST",
            path="/api/learned/forget",
            name="forget_learned",
            summary="Forget what was learned: one's own part with `use`, everybody's with `manage`",
            right=None,
            answer=words.forget_learned,
            body=Forgetting,
            returns=Forgotten,
            tag=LEARNING_TAG,
        ),
    )


class FeedbackOperations:
    """The operations about feedback and learning."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def list_feedback(self, request: ApiRequest) -> WordPage:
        packet_id = request.path["packet_id"]
        own = get_visible_caller(request.principal)
        await self._check_packet(packet_id, own)
        found = await self._router.learning.list_feedback(packet_id)
        seen = tuple(_build_line(one) for one in found if own in (None, one.by))
        return WordPage(items=seen, counts=self._router.settings.flags.learn_from_feedback)

    async def give_feedback(self, request: ApiRequest) -> WordLine:
        word: Word = request.body
        principal, packet_id = request.principal, request.path["packet_id"]
        await self._check_packet(packet_id, _resolve_person(principal, Right.MANAGE))
        try:
            said = await self._router.learning.give_feedback(
                packet_id,
                word.verdict,
                by=principal.name,
                tool=word.tool,
                should_have=word.should_have,
                comment=word.comment,
                scopes=self._get_scopes(principal, word.should_have),
            )
        except (CallError, ConfigError) as wrong:
            detail = f"{str(wrong)[:1].upper()}{str(wrong)[1:]}. {wrong.hint or ''}".strip()
            raise ApiProblem(422, "This cannot be said", detail) from wrong
        return _build_line(said)

    def _get_scopes(self, principal: Principal, named: str | None) -> tuple[Scope, ...]:
        """Return the scopes for the named tool. With several profiles, use the first that covers it."""
        reaches = build_managed_scope(principal, self._router.profiles).access_scopes
        card = None if named is None else self._router.tools.find(named)
        if card is not None:
            effect = card.effect.value
            reaches = tuple(
                reach for reach in reaches if is_within_scopes(reach.scopes, card.server, card.key, effect)
            )
        return reaches[0].scopes if reaches else (NO_PROFILE_SETTINGS,)

    async def get_learned(self, request: ApiRequest) -> Learned:
        return await self._router.learning.build_overview(person=get_visible_caller(request.principal))

    async def forget_learned(self, request: ApiRequest) -> Forgotten:
        wanted: Forgetting = request.body
        principal = request.principal
        own = _resolve_person(principal, Right.MANAGE)
        if own is not None and wanted.person != own:
            raise build_missing_right(Right.MANAGE)
        try:
            gone = await self._router.learning.forget(*wanted.what, by=principal.name, person=wanted.person)
        except ConfigError as wrong:
            raise ApiProblem(
                422, "This cannot be forgotten", f"{wrong}. {wrong.hint or ''}".strip()
            ) from wrong
        return Forgotten(entries=gone)

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
    raise build_missing_right(Right.USE)


def _build_line(feedback: Feedback) -> WordLine:
    return WordLine(
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
    """Every tool that was ever called, by key."""

    items: tuple[UsageProfile, ...]
    next: str | None = None


@frozen
class InsightQuery:
    """How far back, and in which steps."""

    hours: Annotated[float, Field(gt=0, le=MAX_HOURS)] = 24.0
    step: Literal["auto", "minute", "hour", "day"] = "auto"


@frozen
class EvalQuery:
    """Which reports are wanted."""

    limit: PageLimit = 50
    before: RowNumber | None = None


@frozen
class EvalLine:
    """One report, as `fingerpost eval report --json` gives it."""

    seq: int
    at: datetime
    name: str
    report: JsonObject


@frozen
class EvalPage:
    """Newest first. `hint` says how to get some, where there are none."""

    items: tuple[EvalLine, ...]
    next: int | None = None
    hint: str = ""


def build_statistics_operations(router: Router, ledger: JournalReader) -> tuple[ApiOperation, ...]:
    async def usage(request: ApiRequest) -> UsagePage:
        bounds = build_managed_scope(request.principal, router.profiles)
        used = await router.store.usage.get_profiles()
        return UsagePage(
            items=tuple(
                profile for key, profile in used.items() if bounds.covers_tool(key.partition("/")[0], key)
            )
        )

    async def insight(request: ApiRequest) -> Figures:
        check_unscoped(request.principal)
        query: InsightQuery = request.query
        keys = [card.key for card in router.tools.cards]
        return await ledger.get_figures(hours=query.hours, step=query.step, tools=keys)

    async def evals(request: ApiRequest) -> EvalPage:
        check_unscoped(request.principal)
        query: EvalQuery = request.query
        found = await router.store.evals.list_newest(limit=query.limit + 1, before=query.before)
        items = tuple(
            EvalLine(seq=kept.seq, at=kept.at, name=kept.name, report=kept.report)
            for kept in found[: query.limit]
        )
        follows = items[-1].seq if len(found) > query.limit else None
        return EvalPage(items=items, next=follows, hint="" if items or query.before else NO_EVALS_HINT)

    def reading(path: str, name: str, summary: str, **more: Any) -> ApiOperation:
        return ApiOperation(
            method="GET", path=path, name=name, summary=summary, right=Right.WATCH, tag=FIGURES_TAG, **more
        )

    return (
        reading(
            "/api/usage",
            "list_usage",
            "What past calls of each tool teach: how often, how long, how much",
            answer=usage,
            returns=UsagePage,
        ),
        reading(
            "/api/insight",
            "get_insight",
            "Figures over time",
            answer=insight,
            query=InsightQuery,
            returns=Figures,
        ),
        reading(
            "/api/evals",
            "list_evals",
            "Kept reports of `fingerpost eval`",
            answer=evals,
            query=EvalQuery,
            returns=EvalPage,
        ),
    )
