"""Figures: what past calls of each tool teach, what happened over time, what evals found."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from fingerpost.frozen import frozen
from fingerpost.insight import Figures, JournalReader
from fingerpost.records import JsonObject, Right, UsageProfile
from fingerpost.router import Router
from fingerpost.surfaces.api.operation import ApiOperation, ApiRequest
from fingerpost.surfaces.api.resources.bounds import build_managed_scope
from fingerpost.surfaces.api.resources.words import PageLimit, RowNumber
from fingerpost.surfaces.api.sight import check_unscoped

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
