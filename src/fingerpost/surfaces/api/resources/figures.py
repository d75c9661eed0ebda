"""Figures: what past calls of each tool teach, what happened over time, what evals found."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from fingerpost.frozen import frozen
from fingerpost.insight import Figures, Ledger
from fingerpost.records import JsonObject, Right, UsageProfile
from fingerpost.router import Router
from fingerpost.surfaces.api.operation import ApiRequest, Operation
from fingerpost.surfaces.api.resources.bounds import bounds_of
from fingerpost.surfaces.api.resources.words import Limit, Number
from fingerpost.surfaces.api.sight import check_unbound

TAG: Final = "figures"
LONGEST_HOURS: Final = 24 * 366
NOTHING_KEPT: Final = (
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

    hours: Annotated[float, Field(gt=0, le=LONGEST_HOURS)] = 24.0
    step: Literal["auto", "minute", "hour", "day"] = "auto"


@frozen
class EvalQuery:
    """Which reports are wanted."""

    limit: Limit = 50
    before: Number | None = None


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


def operations(router: Router, ledger: Ledger) -> tuple[Operation, ...]:
    async def usage(request: ApiRequest) -> UsagePage:
        bounds = bounds_of(request.principal, router.profiles)
        used = await router.store.usage.profiles()
        return UsagePage(
            items=tuple(
                profile for key, profile in used.items() if bounds.hold_tool(key.partition("/")[0], key)
            )
        )

    async def insight(request: ApiRequest) -> Figures:
        check_unbound(request.principal)
        query: InsightQuery = request.query
        keys = [card.key for card in router.tools.cards]
        return await ledger.figures(hours=query.hours, step=query.step, tools=keys)

    async def evals(request: ApiRequest) -> EvalPage:
        check_unbound(request.principal)
        query: EvalQuery = request.query
        found = await router.store.evals.newest(limit=query.limit + 1, before=query.before)
        items = tuple(
            EvalLine(seq=kept.seq, at=kept.at, name=kept.name, report=kept.report)
            for kept in found[: query.limit]
        )
        follows = items[-1].seq if len(found) > query.limit else None
        return EvalPage(items=items, next=follows, hint="" if items or query.before else NOTHING_KEPT)

    def reading(path: str, name: str, summary: str, **more: Any) -> Operation:
        return Operation(
            method="GET", path=path, name=name, summary=summary, right=Right.WATCH, tag=TAG, **more
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
