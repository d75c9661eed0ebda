"""The package stays easy to find one's way in: few modules, plain names, imports at the top."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.tables import table
from tests.structure import RULES, read_modules

if TYPE_CHECKING:
    from tests.structure import Module, Rule


@pytest.fixture
def modules() -> list[Module]:
    return read_modules()


@pytest.mark.slow
@table("rule", RULES, ids=lambda rule: rule.title)
def test_a_count_of_the_package_stays_within_its_limit(modules: list[Module], rule: Rule) -> None:
    found = rule.find(modules)
    shown = "\n  ".join(found if rule.limit == 0 else [])
    assert len(found) <= rule.limit, (
        f"{rule.title}: {len(found)}, limit {rule.limit}. {rule.advice}.\n  {shown}"
    )
