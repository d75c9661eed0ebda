"""One tool with an operation parameter, rather than many: those an agent works with are all there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fingerpost.builtin import open_router
from fingerpost.records import ErrorKind
from fingerpost.settings import Settings
from tests.requirements import proves

CONSOLIDATED = {  # with at least so many operations
    "workspace/file_operations": 16,
    "workspace/terminal_operations": 5,
    "memory/memory_operations": 5,
    "collaboration/user_collaboration": 2,
}


@proves("C5")
async def test_the_agents_tools_are_there_and_check_their_operations(
    settings: Settings, tmp_path: Path
) -> None:
    names = ["workspace", "memory", "collaboration", "specialists"]
    given = Settings.model_validate({**settings.model_dump(), "builtin": {"enabled": names}})
    async with open_router(settings=given, folder=tmp_path) as router:
        await router.connect()
        cards = {card.key: card for card in router.tools.cards}
        assert {"memory/think", "specialists/run_subagent"} <= cards.keys()
        for key, count in CONSOLIDATED.items():
            schema: Any = cards[key].definition["inputSchema"]
            offered = schema["properties"]["operation"]["enum"]
            assert len(offered) >= count, offered
            assert set(cards[key].operations) == set(offered)  # each is judged by what it does
            wrong = await router.call(key, {"operation": "no such thing at all"})
            assert wrong.error is ErrorKind.INVALID_PARAMETERS and offered[0] in wrong.content
