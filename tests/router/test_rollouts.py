"""Changed settings for a share of conversations, and the figures that watch them."""

from __future__ import annotations

from pathlib import Path

from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.events import RouteBegan
from fingerpost.testing import ScriptedModel, calls, tool_server
from tests.kit.routers import open_router
from tests.requirements import proves


@proves("D12", "D15")
async def test_a_setting_is_rolled_out_to_a_share_of_conversations_with_both_arms_in_the_figures(
    tmp_path: Path,
) -> None:
    rollout = {"name": "one tool", "setting": "narrow.max_tools", "value": 1, "share": 0.5}
    servers = [tool_server("notes", ["read_red_note", "read_blue_note", "read_green_note"]).spec()]
    async with open_router(tmp_path, servers, rollout=[rollout]) as router:
        offered = {
            name: {
                len((await router.narrow("read my notes", conversation=name)).shortlist.offered)
                for _ in range(2)  # a conversation stays in its arm
            }
            for name in map(str, range(12))
        }
        route = await router.route("read my notes", conversation="0")
        await router.store.journal.flush()
        figures = await JournalReader(router.store, router.live).get_figures(hours=1)
    assert {frozenset(found) for found in offered.values()} == {frozenset({1}), frozenset({3})}
    changed = sum(found == {1} for found in offered.values())
    (began,) = (event for event in route.events if isinstance(event, RouteBegan))
    assert began.arms == {"one tool": "changed" if offered["0"] == {1} else "usual"}
    arms = {one.arm: one.figures for one in figures.rollouts if one.rollout == "one tool"}
    also = int(began.arms["one tool"] == "changed")
    assert {arm: counted.requests for arm, counted in arms.items()} == {
        "changed": 2 * changed + also,
        "usual": 2 * (12 - changed) + 1 - also,
    }
    assert arms["changed"].offered == arms["changed"].narrowed
    assert sum(sum(counted.outcomes.values()) for counted in arms.values()) == 1


@proves("D15")
async def test_how_often_an_exclusive_tool_is_taken_is_counted(tmp_path: Path) -> None:
    query = {
        "name": "datagov_query",
        "description": "Query datasets",
        "inputSchema": {
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
        },
        "annotations": {"readOnlyHint": True},
    }
    ask = "How many cars are there according to official statistics? Look it up."
    model = ScriptedModel(
        lambda request: (
            "3,000,000."
            if any(message.role == "tool" for message in request.messages)
            else calls(("datagov_query", {"query": "cars"}))
        )
    )
    async with open_router(tmp_path, [tool_server("gov", [query]).spec()], model) as router:
        await router.narrow(ask)
        await router.route(ask, mode="simple", asked_for_tools=True)
        await router.store.journal.flush()
        totals = (await JournalReader(router.store, router.live).get_figures(hours=1)).totals
    assert (totals.exclusive_asked, totals.exclusive_taken, totals.exclusive_succeeded) == (2, 1, 1)
    assert totals.exclusive_offered >= 1
