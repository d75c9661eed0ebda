"""Discord is slow, refuses, hangs up; the token is wrong; requests fail."""

from __future__ import annotations

import logging

import discord
import pytest

from fingerpost.errors import ConfigError, ModelUnavailable, ServerUnavailable
from fingerpost.redaction import scrub
from fingerpost.surfaces.discord.client import OneLineHandler
from fingerpost.testing import ScriptedModel
from tests.kit.discord_api import ANN, TOKEN
from tests.kit.discord_bot import BotFactory
from tests.kit.programs import ROOT
from tests.requirements import proves


def echo() -> ScriptedModel:
    return ScriptedModel(lambda request: f"You said: {request.messages[-1].text[-60:]}")


@proves("A18")
async def test_too_many_requests_and_errors_of_discord_are_tried_again(bots: BotFactory) -> None:
    discord = bots.discord
    async with bots.open_bot(echo()):
        limited = {"message": "You are being rate limited.", "retry_after": 0.05, "global": False}
        discord.goes_wrong("POST", r"/channels/\d+/messages", 429, limited, Via="1.1 google")
        discord.goes_wrong("PATCH", r"/channels/\d+/messages/\d+", 502)
        await discord.says(ANN, "hello there")
        await discord.wait_for_message(await discord.thread(), "hello there")
        assert discord.troubles == []


@proves("A18")
async def test_a_broken_line_is_taken_up_where_it_broke(bots: BotFactory) -> None:
    discord = bots.discord
    async with bots.open_bot(echo()):
        await discord.says(ANN, "hello before")
        await discord.wait_for_message(await discord.thread(), "hello before")
        await discord.hang_up()
        await discord.says(ANN, "hello meanwhile")
        await discord.until(lambda: discord.resumed == 1)
        await discord.wait_for_message(await discord.thread(2), "hello meanwhile")
        assert discord.identified == 1


@proves("A18")
async def test_a_request_that_fails_is_told_and_the_next_one_is_answered(bots: BotFactory) -> None:
    discord = bots.discord
    broken = ModelUnavailable("the model is away: key sk-" + "a" * 30, model="scripted")
    async with bots.open_bot(ScriptedModel([broken, broken, "Hello."])):
        await discord.says(ANN, "hello there")
        thread = await discord.thread()
        message = await discord.until(
            lambda: next((each for each in discord.own(thread) if "…" not in each.text), None)
        )
        assert "sk-aaa" not in message.text
        await discord.says(ANN, "hello again", channel=thread)
        await discord.until(lambda: len(discord.own(thread)) == 2)


async def test_a_message_that_discord_refuses_costs_only_itself(bots: BotFactory) -> None:
    discord = bots.discord
    async with bots.open_bot(echo()):
        discord.goes_wrong("POST", r"/channels/\d+/messages", 403, {"code": 50013, "message": "no"})
        await discord.says(ANN, "hello into the void")
        await discord.until(lambda: not discord.troubles)
        await discord.says(ANN, "hello there")
        await discord.wait_for_message(await discord.thread(2), "hello there")


@proves("A18")
async def test_a_wrong_token_is_told_and_never_shown(bots: BotFactory) -> None:
    with pytest.raises(ConfigError, match="does not accept the bot's token") as caught:
        async with bots.open_bot(echo(), token="wrong.token.indeed"):
            pass
    assert "wrong.token.indeed" not in str(caught.value)
    assert "wrong.token.indeed" not in scrub("log in with wrong.token.indeed")
    assert TOKEN not in repr(bots.build_settings().discord)


async def test_a_bot_that_may_not_read_messages_is_told_how_it_may(bots: BotFactory) -> None:
    bots.discord.may_read_messages = False
    with pytest.raises(ConfigError) as caught:
        async with bots.open_bot(echo()):
            pass
    assert "Message Content Intent" in str(caught.value.hint)


async def test_without_a_token_or_with_an_unknown_profile_it_does_not_start(bots: BotFactory) -> None:
    for token in (" ", "${DISCORD_TOKEN}"):
        with pytest.raises(ConfigError, match="token is missing") as caught:
            async with bots.open_bot(echo(), token=token):
                pass
        assert "FINGERPOST_DISCORD__TOKEN" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="no profile"):
        async with bots.open_bot(echo(), profile="nobody"):
            pass


async def test_a_discord_out_of_reach_is_told(bots: BotFactory) -> None:
    with pytest.raises(ServerUnavailable):
        async with bots.open_bot(echo(), api_url="http://127.0.0.1:9/api"):
            pass


def test_what_the_library_logs_is_one_line_without_secrets() -> None:
    texts: list[str] = []
    log = logging.getLogger("discord.stand_in")
    handler = OneLineHandler(texts.append)
    log.addHandler(handler)
    try:
        raise OSError("the line\nbroke; ghp_" + "a" * 30)
    except OSError:
        log.exception("Attempting a reconnect in %.2fs", 1.5)
    finally:
        log.removeHandler(handler)
    assert texts == ["Attempting a reconnect in 1.50s (OSError: the line broke; [redacted])"]


def test_the_invitation_in_the_documentation_asks_for_what_it_says() -> None:
    wanted = discord.Permissions.none()
    wanted.update(
        view_channel=True,
        send_messages=True,
        create_public_threads=True,
        send_messages_in_threads=True,
        attach_files=True,
        read_message_history=True,
    )
    page = (ROOT / "docs" / "how-to" / "discord.md").read_text(encoding="utf-8")
    assert page.count(str(wanted.value)) == 2
