"""A few hundred messages that are nearly right, in each direction and era; `fuzz` sends more."""

from __future__ import annotations

import pytest

from tests.kit.tables import table
from tests.requirements import proves
from tests.security.cases import MODERN, OLD
from tests.security.fuzz import Direction, run

pytestmark = pytest.mark.anyio


@pytest.mark.process
@proves("X1")
@table(
    ("direction", "era"),
    [("server", OLD), ("server", MODERN), ("client", OLD), ("client", MODERN), ("stdio", OLD)],
)
async def test_no_message_costs_more_than_its_own_call(direction: Direction, era: str) -> None:
    figures = await run(direction, era, cases=400, seed=3)
    assert figures.cases >= 400
    assert figures.good_calls > 0
    assert figures.faults == []
    assert figures.clean
