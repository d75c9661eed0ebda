"""The servers of a request that was answered well before are remembered, and nothing else is skipped."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fingerpost import Router
from fingerpost.events import SmartRoutingEnd
from fingerpost.llm import ModelRequest
from fingerpost.records import Choice, utc_now
from fingerpost.testing import ScriptedModel
from tests.kit.learning import open_office_router
from tests.requirements import proves

REQUEST = "search my mailbox for messages by Kim about the budget"
AGAIN = "Search my mailbox for messages by Kim about the budget, please"
OTHER = "list the events in my calendar between Monday and Friday"


class ServerChoosingModel:
    """Chooses a given server, selects nothing, and counts how often it was asked for servers."""

    def __init__(self, server: str = "mail") -> None:
        self.server = server
        self.asked_for_servers = 0

    def __call__(self, request: ModelRequest) -> str:
        if request.schema is not None and "servers" in str(request.schema):
            self.asked_for_servers += 1
            return f'{{"servers": ["{self.server}"], "reasoning": "it is about that"}}'
        return '{"tool": null}'


def decision_cache_settings(*, on: bool = True) -> dict[str, Any]:
    return {"smart_routing": {"mode": "on"}, "flags": {"decision_cache": on}}


async def used(router: Router, tool: str, *, worked: bool = True, days: float = 0.0, times: int = 2) -> None:
    at = utc_now() - timedelta(days=days)
    for _ in range(times):
        await router.store.choices.record(Choice(request=REQUEST, tool=tool, worked=worked, at=at))


def get_choice(ended: SmartRoutingEnd) -> tuple[str, tuple[str, ...]]:
    return ended.by, ended.relevant_servers


@proves("L4", "E11")
@pytest.mark.parametrize("on", [True, False])
async def test_a_request_that_was_right_before_needs_no_question_for_its_servers(
    tmp_path: Path, on: bool
) -> None:
    clerk = ServerChoosingModel()
    model = ScriptedModel(clerk)
    async with open_office_router(tmp_path, model=model, more=4, **decision_cache_settings(on=on)) as (
        router,
        sink,
    ):
        await used(router, "mail/search_mail")
        same = [await router.narrow(text) for text in (REQUEST, AGAIN)]
        asked_for_the_same = clerk.asked_for_servers
        other = await router.narrow(OTHER)
        ends = [event for event in sink.events if isinstance(event, SmartRoutingEnd)]
    assert asked_for_the_same == (0 if on else 2)
    assert clerk.asked_for_servers == asked_for_the_same + 1, "what is not known is asked about"
    assert [end.by for end in ends] == (["remembered"] * 2 if on else ["model"] * 2) + ["model"]
    for narrowing in same:
        assert narrowing.servers is not None
        assert "mail" in narrowing.servers.servers
        assert narrowing.shortlist.offered[0].tool == "mail/search_mail"
    assert other.servers is not None
    if on:
        assert same[0].servers is not None
        assert same[0].servers.reasoning == "right for the same request before: mail"


@proves("L4")
@pytest.mark.parametrize("case", ["once", "failed", "old", "opposite", "forgotten", "blamed"])
async def test_what_is_doubtful_is_asked_about(tmp_path: Path, case: str) -> None:
    clerk = ServerChoosingModel()
    async with open_office_router(
        tmp_path, model=ScriptedModel(clerk), more=4, **decision_cache_settings()
    ) as (
        router,
        _,
    ):
        await used(
            router, "mail/search_mail", times=1 if case == "once" else 2, days=8 if case == "old" else 0
        )
        if case == "failed":
            await used(router, "mail/search_mail", worked=False, times=1)
        if case == "forgotten":
            await router.learning.forget("decisions", by="dana")
        if case == "blamed":
            found = await router.narrow(REQUEST)
            assert found.packet_id is not None
            await router.feedback(found.packet_id, "bad", by="dana", tool="mail/search_mail")
            clerk.asked_for_servers = 0
        text = REQUEST.replace("search", "delete") if case == "opposite" else REQUEST
        await router.narrow(text)
    assert clerk.asked_for_servers == 1


@proves("L4")
async def test_one_word_of_a_person_is_enough_and_hidden_servers_are_not_remembered(tmp_path: Path) -> None:
    clerk = ServerChoosingModel("calendar")
    rules = [{"verdict": "deny", "server": "mail", "caller": "kim"}]
    settings = {**decision_cache_settings(), "policy": rules}
    async with open_office_router(tmp_path, model=ScriptedModel(clerk), more=4, **settings) as (router, _):
        found = await router.narrow(REQUEST)
        assert found.packet_id is not None
        await router.feedback(found.packet_id, "bad", by="dana", should_have="mail/search_mail")
        clerk.asked_for_servers = 0
        again = await router.narrow(REQUEST, caller="dana")
        assert clerk.asked_for_servers == 0
        assert again.servers is not None
        assert "mail" in again.servers.servers
        theirs = await router.narrow(REQUEST, caller="kim")
    assert clerk.asked_for_servers == 1
    assert theirs.servers is not None
    assert "mail" not in theirs.servers.servers
