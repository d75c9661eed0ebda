"""A day is read alike in a request and in the arguments of a call."""

from __future__ import annotations

from datetime import date

from fingerpost.call.arguments import prepare_arguments
from fingerpost.dates import parse_day
from tests.kit.argument_tools import takes
from tests.kit.tables import table

TODAY = date(2026, 11, 17)
DATE = {"type": "string", "format": "date"}


@table(
    "written",
    [
        "2026-03-05",
        "5 March 2026",
        "Mar 5, 2026",
        "5th of march 2026",
        "5 במרץ 2026",
        "5 מרס 2026",
        "20260305",
    ],
)
def test_a_written_day_is_one_day_everywhere(written: str) -> None:
    prepared = prepare_arguments(takes({"day": DATE}), {"day": written})
    assert prepared.arguments == {"day": "2026-03-05"}
    assert parse_day(written, TODAY) == "2026-03-05"


@table("written", ["3/4/2026", "31/4/2026", "March 2026", "5 Smarch 2026", "2026-02-30"])
def test_what_is_no_certain_day_is_none_anywhere(written: str) -> None:
    assert prepare_arguments(takes({"day": DATE}), {"day": written}).arguments == {"day": written}
    assert parse_day(written, TODAY) is None
