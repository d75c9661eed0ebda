"""The promises and the tests agree, in both directions."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.requirements import REQUIREMENTS

TESTS = Path(__file__).parent
# The mark at the beginning of a line, and the first function after it.
PROOF = re.compile(r"^ *@proves\(([^)]*)\)(?=(?s:.*?)^ *(?:async )?def (\w+))", re.MULTILINE)


@cache
def proven_ids() -> dict[str, list[str]]:
    """Every id named by a `@proves(…)` in the test files, with the tests that carry it."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for ids, test in PROOF.findall(path.read_text(encoding="utf-8")):
            for name in re.findall(r'"(\w+)"', ids):
                found.setdefault(name, []).append(f"{path.relative_to(TESTS)}::{test}")
    return found


def test_every_promise_without_a_gap_has_a_test() -> None:
    unproven = [
        name for name, entry in REQUIREMENTS.items() if entry.gap is None and name not in proven_ids()
    ]
    assert unproven == []


def test_every_test_proves_a_listed_promise() -> None:
    unlisted = {name: tests for name, tests in proven_ids().items() if name not in REQUIREMENTS}
    assert unlisted == {}


def test_every_row_of_the_source_documents_is_listed() -> None:
    rows = {"A": 20, "B": 13, "C": 12, "D": 15, "E": 12}
    expected = {f"{letter}{number}" for letter, count in rows.items() for number in range(1, count + 1)}
    assert expected <= REQUIREMENTS.keys()
