"""A Discord of the test's own, and the connector in it with real tool servers and a scripted model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.kit.discord_api import stand_in
from tests.kit.discord_bot import BotFactory


@pytest.fixture
async def bots(tmp_path: Path) -> AsyncGenerator[BotFactory]:
    async with stand_in() as discord:
        yield BotFactory(discord, tmp_path)
