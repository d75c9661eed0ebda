"""Quick or thorough answers: what a person prefers changes tools and modes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost.errors import ConfigError
from fingerpost.records import Mode, Narrowing
from fingerpost.testing import ScriptedModel, tool_server
from tests.kit.routers import open_router
from tests.requirements import proves

READS = {"annotations": {"readOnlyHint": True}}
TOOLS = [
    {"name": "search_web", "description": "Search the web for a topic.", **READS},
    {"name": "investigate_topic", "description": "Deep research: search the web for a topic.", **READS},
    {"name": "read_news", "description": "Search the news for a topic.", **READS},
]
ASK = "search the web for a topic: owls"


def list_offered(narrowing: Narrowing) -> list[str]:
    return [candidate.tool for candidate in narrowing.shortlist.offered]


@proves("B13")
async def test_a_quick_answer_leaves_slow_tools_out_and_a_thorough_one_prefers_and_offers_more(
    tmp_path: Path,
) -> None:
    async with open_router(tmp_path, [tool_server("web", TOOLS).spec()]) as router:
        usual = await router.narrow(ASK)
        quick = await router.narrow(ASK, effort="quick")
        thorough = await router.narrow(ASK, effort="thorough")
        with pytest.raises(ConfigError, match="no effort"):
            await router.narrow(ASK, effort="lazy")
    slow = next(one for one in quick.shortlist.candidates if one.tool == "web/investigate_topic")
    assert "web/investigate_topic" in list_offered(usual)
    assert list_offered(quick)[0] == "web/search_web"
    assert (slow.offered, slow.lost) == (
        False,
        "it is slow, a quick answer is wanted, and web/search_web suits too",
    )
    scores = [
        {one.tool: one.score for one in found.shortlist.candidates}["web/investigate_topic"]
        for found in (quick, usual, thorough)
    ]
    assert scores == sorted(set(scores))
    assert set(list_offered(usual)) < set(list_offered(thorough)) == {f"web/{tool['name']}" for tool in TOOLS}


@proves("B13")
async def test_what_a_caller_prefers_is_kept_and_changes_the_mode_unless_the_request_says_otherwise(
    tmp_path: Path,
) -> None:
    servers = [tool_server("web", TOOLS).spec()]
    profiles = {"archive": {"effort": "thorough"}}
    async with open_router(tmp_path, servers) as router:
        await router.prefer("dana", "quick")
    model = ScriptedModel(lambda _request: "Hello.")
    async with open_router(tmp_path, servers, model, profiles=profiles, choose={"mode": "simple"}) as router:
        quick = await router.route("Hello!", caller="dana")
        other = await router.route("Hello!", caller="eli")
        under = await router.route("Hello!", caller="eli", profile="archive")
        first_route = await router.route("Hello!", caller="dana", effort="thorough")
        named = await router.route("Hello!", caller="dana", mode="react")
        await router.prefer("dana", None)
        again = await router.route("Hello!", caller="dana")
    modes = [route.mode for route in (quick, other, under, first_route, named, again)]
    assert modes == [Mode.SINGLE, Mode.SIMPLE, Mode.STAGED, Mode.STAGED, Mode.REACT, Mode.SIMPLE]
    assert "prefers quick answers" in str(model.asked[0].messages[0].text)
    assert "prefers" not in str(model.asked[1].messages[0].text)
