"""Everything in the corpus of inventions is stopped; nothing in the corpus of ordinary text is touched."""

from __future__ import annotations

import pytest

from fingerpost.choose.syntax_guard.scanner import SyntaxGuard
from tests.choose.syntax_guard.corpus import (
    GUARD,
    TOOLS,
    GuardSample,
    Undecided,
    ordinary,
    read_invented_samples,
    read_undecided,
)
from tests.kit.tables import table
from tests.requirements import proves


@pytest.mark.slow
@proves("A15")
@table("sample", read_invented_samples(), ids=lambda sample: sample.text[:40])
def test_invented_syntax_is_stopped_and_the_rest_of_the_answer_stays(sample: GuardSample) -> None:
    cleaned = GUARD.clean(sample.text, request=sample.request)
    assert cleaned.text == sample.clean
    assert cleaned.removed


@pytest.mark.slow
@proves("A15")
@table("sample", read_invented_samples(), ids=lambda sample: sample.text[:40])
def test_a_call_of_a_real_tool_can_be_made_properly_and_no_other(sample: GuardSample) -> None:
    calls = [(one.name, one.arguments) for one in GUARD.clean(sample.text).removed if one.name is not None]
    if sample.tool is None:
        assert not any(arguments for _, arguments in calls)
    else:
        assert calls[0] == (sample.tool, sample.arguments)


@proves("A15")
@table("sample", ordinary(), ids=lambda sample: sample.text[:40])
def test_ordinary_text_and_code_survive_unchanged(sample: GuardSample) -> None:
    cleaned = GUARD.clean(sample.text, request=sample.request)
    assert cleaned.text == sample.text
    assert cleaned.removed == ()


@table("sample", ordinary(), ids=lambda sample: sample.text[:40])
def test_ordinary_text_survives_where_no_tools_are_known(sample: GuardSample) -> None:
    assert SyntaxGuard(()).clean(sample.text, request=sample.request).text == sample.text


@table("sample", read_undecided(), ids=lambda sample: sample.text[:40])
def test_what_cannot_be_told_passes_as_data_and_is_stopped_as_a_command(sample: Undecided) -> None:
    """What is, not what should be: a rule that decides these has to show it on all of them."""
    shown = GUARD.clean(sample.text, request=sample.request).text
    assert shown == (sample.text if sample.kind == "word" else "")


def test_the_corpora_are_as_large_as_promised() -> None:
    assert len({sample.text for sample in read_invented_samples()}) >= 830
    assert len({sample.text for sample in ordinary()}) >= 650
    assert len({sample.syntax for sample in read_invented_samples()}) >= 20
    assert len(TOOLS) == 10
