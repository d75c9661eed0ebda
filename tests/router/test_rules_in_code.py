"""Rules of a program beside the configured ones, and sinks that fail."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fingerpost import (
    Call,
    CallContext,
    ConfigError,
    Event,
    EventSink,
    PolicyRule,
    Router,
    Ruling,
    Server,
    Verdict,
)
from fingerpost.events import CallRuled
from fingerpost.testing import ToolServer, tool_server
from tests.kit.routers import build_settings
from tests.kit.tables import table
from tests.requirements import proves

TOOLS = [
    {
        "name": name,
        "description": f"{name.title()} a note.",
        "inputSchema": {"type": "object", "properties": {"note": {"type": "string"}}},
        "annotations": {"readOnlyHint": name == "read", "destructiveHint": False},
    }
    for name in ("read", "write")
]


class Judge:
    """A rule with one opinion on calls that mention a word."""

    def __init__(self, word: str, verdict: Verdict | str, *, label: str = "house rule") -> None:
        self.label = label
        self._word = word
        self._verdict: Any = verdict

    def judge(self, call: Call, context: CallContext) -> Ruling | None:
        if self._word not in str(call.arguments):
            return None
        reason = f"{context.caller} said {self._word}"
        return Ruling(verdict=self._verdict, reason=reason, rule="anything")


class Broken:
    label = "broken rule"

    def judge(self, call: Call, context: CallContext) -> Ruling | None:
        message = "secret-token-123"
        raise RuntimeError(message)


@asynccontextmanager
async def notes(
    folder: Path, *rules: PolicyRule, sinks: Iterable[EventSink] = (), **settings: Any
) -> AsyncGenerator[tuple[Router, ToolServer]]:
    server = tool_server("notes", TOOLS)
    async with Router(
        [Server.in_process("notes", server.server)],
        settings=build_settings(folder, **settings),
        rules=rules,
        sinks=sinks,
    ) as router:
        await router.connect()
        yield router, server


@proves("H26")
async def test_a_rule_in_code_denies_and_is_named(tmp_path: Path) -> None:
    seen = Kept()
    async with notes(tmp_path, Judge("secret", Verdict.DENY), sinks=[seen]) as (router, server):
        denied = await router.call("notes/read", {"note": "secret plans"}, caller="dana")
        fine = await router.call("notes/read", {"note": "plans"}, caller="dana")
    assert (denied.success, denied.error, fine.success) == (False, "denied", True)
    assert denied.content == "notes/read is not permitted by the rule 'house rule': dana said secret"
    assert "fingerpost.toml" not in denied.advice
    assert server.calls == [("read", {"note": "plans"})]
    rulings = [(one.verdict, one.rule) for one in seen.events if isinstance(one, CallRuled)]
    assert rulings == [("deny", "house rule"), ("allow", "default for read")]


@proves("H26")
async def test_a_rule_in_code_spares_the_question_but_overrules_no_configured_rule(tmp_path: Path) -> None:
    rules = [{"verdict": "deny", "tool": "notes/write", "arguments": {"note": "private*"}}]
    async with notes(tmp_path, Judge("p", Verdict.ALLOW), policy=rules) as (router, server):
        allowed = await router.call("notes/write", {"note": "plans"})
        denied = await router.call("notes/write", {"note": "private plans"})
        asked = await router.call("notes/write", {"note": "bread"})
    assert (allowed.success, denied.error, asked.success) == (True, "denied", False)
    assert server.calls == [("write", {"note": "plans"})]


@proves("H26")
@pytest.mark.parametrize("rule", [Broken(), Judge("", "perhaps", label="broken rule")])
async def test_a_rule_that_fails_denies(tmp_path: Path, rule: PolicyRule) -> None:
    async with notes(tmp_path, rule) as (router, server):
        denied = await router.call("notes/read", {"note": "plans"})
    assert (denied.success, denied.error, server.calls) == (False, "denied", [])
    assert "secret" not in denied.content


async def test_a_verdict_written_as_text_counts(tmp_path: Path) -> None:
    async with notes(tmp_path, Judge("p", "deny")) as (router, _):
        assert (await router.call("notes/read", {"note": "plans"})).error == "denied"


@table(
    ("rules", "problem"),
    [
        ([object()], "has no method `judge`"),
        ([Judge("", "deny", label="")], "no short line"),
        ([Judge("", "deny", label="a\nb")], "no short line"),
        ([Judge("", "deny"), Judge("", "ask")], "two rules have the label"),
    ],
)
def test_a_rule_that_could_not_be_named_is_refused(rules: list[Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        Router(rules=rules)
    assert caught.value.hint


class Kept:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)


class Failing:
    """A sink that always raises."""

    def emit(self, event: Event) -> None:
        raise RuntimeError(event.kind)


@proves("H26")
async def test_a_sink_that_raises_affects_neither_calls_nor_other_sinks(tmp_path: Path) -> None:
    seen = Kept()
    async with notes(tmp_path, sinks=[Failing(), seen]) as (router, _):
        outcome = await router.call("notes/read", {"note": "plans"})
        narrowing = await router.narrow("Read a note")
    assert outcome.success
    assert narrowing.shortlist.offered
    assert {"call_finished", "request_narrowed"} <= {event.kind for event in seen.events}
