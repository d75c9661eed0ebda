"""Parts of the console's pages alone: arguments through a form and back, axes, figures gathered, dates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser

from tests.kit.browser import ConsoleServer, visit, write_import
from tests.requirements import proves

KINDS = [*"abcdefghijk", "answered", "failed"]
EXAMPLES = settings(max_examples=20, deadline=None)
Run = Callable[[str, str, Any], Any]

names = st.sampled_from(["path", "count", "sure", "mode", "tags", "__proto__", "constructor", "ש"])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**50), 2**50), st.text(alphabet='a"\\\n א', max_size=6)
)
values = st.one_of(scalars, st.lists(scalars, max_size=2), st.dictionaries(names, scalars, max_size=2))
SCHEMAS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": ["string", "null"]},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"enum": ["a", 1, None]},
    {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    {"type": "array", "items": {}},
    {},
]
kinds = st.sampled_from(SCHEMAS)


@pytest.fixture(scope="module")
def run(browser: Browser, server: ConsoleServer) -> Iterator[Run]:
    """`run(module, expression, value)`: what the expression over `m` (the module) and `value` gives."""
    with visit(browser, server, "#/ask") as page:

        def evaluate(module: str, expression: str, value: Any) -> Any:
            script = (
                f"(text) => {write_import(module)}.then((m) => {{ const value = JSON.parse(text); "
                f"return JSON.stringify({expression}); }})"
            )
            return json.loads(page.evaluate(script, json.dumps(value)))

        yield evaluate


@EXAMPLES
@given(
    properties=st.dictionaries(names, kinds, max_size=4), arguments=st.dictionaries(names, values, max_size=4)
)
def test_arguments_left_alone_in_the_form_stay_as_they_are(
    run: Run, properties: dict[str, Any], arguments: dict[str, Any]
):
    parse = "(fields) => m.parseDraft(fields, m.buildDraft(fields, value[1]))"
    script = f"({parse})(m.buildFields(value[0], value[1]))"
    found = run("pages/arguments.js", script, [{"type": "object", "properties": properties}, arguments])
    assert found == {"arguments": arguments, "errors": {}}


@pytest.mark.parametrize(
    ("schema", "typed", "meant"),
    [
        ({"type": "integer", "minimum": 1}, "0", "At least 1."),
        ({"type": "integer"}, "1.5", "Enter a whole number."),
        ({"type": "number"}, "many", "Enter a number."),
        ({"type": "number"}, "", "Required."),
        ({"type": "array"}, "[1,", "This is not valid JSON."),
        ({"type": "string", "maxLength": 2}, "שלום", "At most 2 characters."),
        ({"type": "string"}, "", ""),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "7", 7),
    ],
)
def test_what_is_typed_is_checked_beside_its_field(run: Run, schema: Any, typed: str, meant: Any):
    whole = {"properties": {"field": schema}, "required": ["field"]}
    script = "m.parseDraft(m.buildFields(value[0], {}), {field: value[1]})"
    found = run("pages/arguments.js", script, [whole, typed])
    assert meant in (found["errors"].get("field"), found["arguments"].get("field"))
    assert len(found["errors"]) + len(found["arguments"]) == 1


@EXAMPLES
@given(most=st.one_of(st.floats(1e-6, 1e12), st.integers(0, 20)), whole=st.booleans())
def test_an_axis_has_few_round_steps_and_room_for_everything(run: Run, most: float, whole: bool):
    marks = run("charts.js", "m.computeTicks(value[0], value[1])", [most, whole])
    assert marks[0] == 0 and marks[-1] >= most * (1 - 1e-9) and 2 <= len(marks) <= 7
    assert marks == sorted(set(marks))
    assert not whole or all(float(mark).is_integer() for mark in marks) or most > 2**50


@EXAMPLES
@given(
    counted=st.lists(
        st.dictionaries(st.sampled_from(KINDS), st.integers(1, 9), max_size=9),
        min_size=1,
        max_size=4,
    )
)
def test_however_many_kinds_there_are_each_is_counted_once(run: Run, counted: list[dict[str, int]]):
    script = "m.buildSeries(value, 'outcomes', {answered: {label: 'answered', colour: 1}})"
    found = run("pages/insight.js", script, [{"outcomes": one} for one in counted])
    shown = [one["name"] for one in found["series"]]
    assert len(shown) == len(set(shown)) <= 8
    for before, after in zip(counted, found["rows"], strict=True):
        assert set(after) <= set(shown)
        assert sum(after.values()) == Counter(before).total()


@proves("V13")
def test_steps_and_outcomes_claim_only_what_happened(run: Run):
    asked: dict[str, Any] = {"verdict": "ask", "reason": "no rule", "rule": "default for destroy"}
    steps = [
        {"kind": "call_ruled", "data": asked, "summary": ""},
        {"kind": "call_finished", "data": {"error": "authorization_required"}, "summary": ""},
        {"kind": "approval_decided", "data": {"decision": "rejected", "decided_by": "dana"}, "summary": ""},
    ]
    assert run("pages/audit.js", "value.map(m.describeStep)", steps) == [
        "needs approval: it can overwrite or delete data",
        "not called: it needs approval",
        "rejected by dana",
    ]
    lines = [
        ("answered", {"dry_run": True}),
        ("declined", {"decision": "rejected"}),
        ("answered", {"decision": "approved"}),
    ]
    refined = run("journey.js", "value.map(([outcome, line]) => m.refineOutcome(outcome, line))", lines)
    assert refined == ["dry_run", "rejected", "answered"]


def test_the_last_day_of_a_range_belongs_to_it(run: Run):
    wanted = {"since": "2026-03-01", "until": "2026-03-01", "kind": "x"}
    found = run("pages/audit.js", "m.buildQuery(value)", wanted)
    since, until = found["since"], found["until"]
    length = run("pages/audit.js", "new Date(value[1]) - new Date(value[0])", [since, until])
    assert (found["kind"], length) == ("x", 86_400_000)


@pytest.mark.parametrize(
    ("candidate", "hidden", "need", "badge", "words"),
    [
        ({"offered": True, "lost": ""}, [], "tool", "offered", "Rank 1 of 9 tools considered."),
        ({"offered": False, "lost": "too far behind"}, [], "tool", "not offered", "Too far behind. Rank 1"),
        (None, [{"tool": "a/b", "rule": "rule 2", "reason": "private"}], "tool", "hidden", "rule 2: private"),
        (None, [], "none", "not offered", "No tool needed"),
        (None, [], "tool", "not offered", "It was not among the 9 tools"),
    ],
)
def test_where_a_tool_stood_in_one_sentence(
    run: Run, candidate: Any, hidden: Any, need: str, badge: str, words: str
):
    ranked: list[Any] = [] if candidate is None else [{"tool": "a/b", **candidate}]
    shortlist: Any = {"candidates": ranked, "hidden": hidden, "considered": 9}
    narrowing: Any = {"shortlist": shortlist, "need": {"verdict": need, "reasons": []}}
    found = run("pages/standing.js", "m.describeRank(value, 'a/b')", narrowing)
    assert found["badge"] == badge and words in found["words"]


@pytest.mark.parametrize(
    ("now", "then", "share", "words"),
    [
        (3, 2, False, "▲ 50 %"),
        (0, 2, False, "▼ 100 %"),
        (2, 0, False, "0 before"),
        (2, 2, False, "unchanged"),
        (0.251, 0.2, True, "▲ 5.1 points"),
        (None, 0.2, True, ""),
        (4, None, False, ""),
    ],
)
def test_a_figure_is_told_against_the_time_before(run: Run, now: Any, then: Any, share: bool, words: str):
    assert run("pages/insight.js", "m.describeChange(...value)", [now, then, share]) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (61, "1 min 01 s"), (3_660, "1 h 01 min"), (90_000, "1 d 1 h")]
)
def test_what_is_left_is_told_in_two_units(run: Run, seconds: float, words: str):
    assert run("pages/approvals.js", "m.formatRemaining(value)", seconds) == words
