"""`fingerpost discord`, as a process."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from tests.kit import warm
from tests.kit.command_line import CommandLine
from tests.kit.discord_api import ANN, TOKEN, stand_in
from tests.requirements import proves

pytestmark = pytest.mark.process

SETTINGS = """
[discord]
api_url = "{api}"
users = ["1"]

[flags]
dense_scores = false
"""


@proves("A18", "T1")
async def test_the_command_says_who_it_is_answers_and_stops_when_told(tmp_path: Path) -> None:
    person = CommandLine(tmp_path)
    person.has("time", command=warm.server("mcp-server-time"), args=["--local-timezone=UTC"])
    async with stand_in() as discord:
        person.writes("fingerpost.toml", SETTINGS.format(api=discord.api))
        environment = {**person.environment, "FINGERPOST_DISCORD__TOKEN": TOKEN}
        async with await anyio.open_process(
            person.command("discord"), cwd=person.home, env=environment
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            try:
                output = await TextReceiveStream(process.stdout).receive()
            except anyio.EndOfStream:
                pytest.fail((await process.stderr.receive()).decode())
            assert output.startswith("On Discord as fingerpost, on 1 server")
            await discord.says(ANN, "What time is it in Asia/Tokyo?")
            await discord.wait_for_message(await discord.thread(), "Asia/Tokyo")
            process.send_signal(signal.SIGTERM)
            noted = "".join([text async for text in TextReceiveStream(process.stderr)])
            assert await process.wait() == 0
    assert "no approvers are configured" in noted
    assert TOKEN not in output + noted and "Traceback" not in noted


async def test_without_a_token_it_says_how_to_get_one(tmp_path: Path) -> None:
    person = CommandLine(tmp_path)
    person.has("time", command=warm.server("mcp-server-time"))
    done = await anyio.to_thread.run_sync(person.runs, "discord")
    assert done.returncode == 2
    assert "the Discord token is missing" in done.stderr and "FINGERPOST_DISCORD__TOKEN" in done.stderr


async def test_without_the_library_it_says_how_to_install_it(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['discord'] = None; sys.argv = ['fingerpost', 'discord'];"
        "from fingerpost.surfaces.cli.main import main; main()"
    )
    person = CommandLine(tmp_path)
    done = await anyio.run_process(
        [*warm.python(), "-c", code], cwd=tmp_path, env=person.environment, check=False
    )
    assert done.returncode == 2
    assert "pip install 'fingerpost[discord]'" in done.stderr.decode()
