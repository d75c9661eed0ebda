"""Words of strangers do nothing on Discord, and a call that waits always fits into one message."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fingerpost.records import Decision, Effect, Pending
from fingerpost.surfaces.discord.approvals import render_approval, render_decided
from fingerpost.surfaces.discord.messages import MAX_MESSAGE_LENGTH, escape_line, format_json_value
from tests.requirements import proves

_HOSTILE = st.text(alphabet="`*_~|<@&!>#[]()\\\n:-/x\u202e\u200b", max_size=400)
_VALUES = st.recursive(
    st.one_of(st.none(), st.integers(), _HOSTILE),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_HOSTILE, inner, max_size=3)),
    max_leaves=6,
)
_ARGUMENTS = st.dictionaries(_HOSTILE, _VALUES, max_size=4)
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def remove_escapes(text: str) -> str:
    """What is not escaped: all that Discord would read as more than a character."""
    return re.sub(r"\\.", "", text)


@proves("T2")
@given(_HOSTILE, _HOSTILE, _HOSTILE, _ARGUMENTS)
def test_a_call_that_waits_fits_into_one_message_and_stays_in_its_block(
    tool: str, reason: str, name: str, arguments: dict[str, Any]
) -> None:
    pending = Pending(
        pending_id="apr_" + "0" * 32, tool=tool, operation=tool, arguments=arguments, call_fingerprint="f",
        effect=Effect.DESTROY, reason=reason, created=_NOW, expires=_NOW, caller=name,
    )  # fmt: skip
    decided = replace(pending, decision=Decision.REJECTED, decided_by=name, decision_reason=reason)
    for text in (render_approval(pending)[0], render_decided(decided)):
        assert len(text) <= MAX_MESSAGE_LENGTH
        assert text.count("```") == 2
        outside = re.sub(r"```.*```|<t:\d+:t>", "", text, flags=re.DOTALL)
        assert not re.search(r"[<@`]", remove_escapes(outside))


@proves("T2")
@given(_VALUES)
def test_a_value_is_shown_as_the_same_json(value: Any) -> None:
    shown = format_json_value(value)
    assert "`" not in shown and all(line.isprintable() for line in shown.split("\n"))
    assert json.loads(shown) == value


@given(_HOSTILE)
def test_plain_words_are_one_line_with_everything_escaped(text: str) -> None:
    shown = escape_line(text)
    assert shown.isprintable() and not re.search(r"[`*_~|<>@\[\\]", remove_escapes(shown))
