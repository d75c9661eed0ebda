"""Whatever a model calls, of whose tools ever, in however many rounds: every prompt is in order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fingerpost.embed import Embedded
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.records import Message, RouteOutcome
from fingerpost.testing import ScriptedModel
from tests.kit.caller_tools import OWN, REQUEST, SEARCH, call, disorder, notes, reply_with_calls
from tests.kit.routers import build_settings as house_settings
from tests.kit.routers import get_purpose, write_review, write_selection
from tests.requirements import proves

IDS = ("call_1", "call_2", "")
CALL = st.tuples(
    st.booleans(), st.sampled_from(IDS)
)  # whether it is the caller's, and the id the model gives
ROUNDS = st.lists(st.lists(CALL, min_size=1, max_size=3), max_size=4)
MODES = st.sampled_from(["simple", "single", "react", "staged"])


class RoundsModel:
    """A model that makes these calls round by round, then answers; no two calls of ours are alike."""

    def __init__(self) -> None:
        self.rounds: list[Sequence[tuple[bool, str]]] = []
        self.asked: list[ModelRequest] = []
        self._made = 0

    def begin(self, rounds: Sequence[Sequence[tuple[bool, str]]]) -> None:
        self.rounds, self.asked = list(rounds), []

    def __call__(self, request: ModelRequest) -> ModelReply | str:
        self._made += 1
        purpose = get_purpose(request)
        if purpose == "selection":
            ours = bool(self.rounds) and not all(callers for callers, _ in self.rounds[0])
            return write_selection(
                SEARCH if ours else None, {"query": f"words {self._made}"} if ours else None
            )
        if purpose == "review":
            return write_review()
        self.asked.append(request)
        if not self.rounds:
            return "That is all, says notes/search_notes."
        made: list[Any] = []
        for number, (callers, id) in enumerate(self.rounds.pop(0)):
            arguments = {"query": f"words {self._made} {number}"}
            made.append(call("paint_wall", id) if callers else call(SEARCH, id, **arguments))
        return reply_with_calls(*made)


@pytest.mark.slow
@proves("O3")
def test_every_call_is_answered_and_every_answer_has_its_call(tmp_path: Path) -> None:
    script = RoundsModel()
    servers = [notes().spec()]
    model = ScriptedModel(script)
    with Embedded(servers, settings=house_settings(tmp_path), prime=model) as fingerpost:

        @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(rounds=ROUNDS, mode=MODES)
        def check(rounds: list[list[tuple[bool, str]]], mode: str) -> None:
            script.begin(rounds)
            since: tuple[Message, ...] = ()
            while True:
                route = fingerpost.ask(
                    REQUEST, mode=mode, caller_tools=OWN, since=since, asked_for_tools=True
                )
                if route.outcome is not RouteOutcome.HANDED_BACK:
                    break
                assert len(route.hidden) == 2 * len(route.packet.tool_routing.steps)
                results = {str(made["id"]): "painted" for made in route.tool_calls}
                since = (*since, *route.answered_with(results))
            for request in script.asked:
                assert not disorder(request.messages)
            assert not disorder(since)
            assert sum(message.text == "painted" for message in since) == sum(
                len(message.tool_calls)
                for message in since
                if message.tool_calls and "paint_wall" in str(message.tool_calls)
            )

        check()
