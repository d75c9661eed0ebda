"""Mentions and direct messages become requests, threads conversations."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from fingerpost.events import PacketReceived
from fingerpost.testing import HANG, ScriptedModel, calls
from tests.kit.discord_api import ANN, BEN, BOT, CHANNEL, CLEO, GUILD, ROLE, SELF, DiscordUser
from tests.kit.discord_bot import BotFactory, RunningBot
from tests.requirements import proves

READ = "Read the note about roses in the garden book"


def echo() -> ScriptedModel:
    """Repeats the last message."""
    return ScriptedModel(lambda request: f"You said: {request.messages[-1].text[-60:]}")


async def packets(bot: RunningBot, conversation: int) -> list[tuple[str | None, int]]:
    await bot.router.store.journal.flush()
    found = await bot.router.store.journal.list_session_packets(f"discord:{conversation}")
    return [(packet.header.caller, packet.context.message_count) for packet in reversed(found)]


@proves("A18", "T1")
async def test_a_mention_opens_a_thread_and_is_answered_there(bots: BotFactory) -> None:
    discord = bots.discord
    model = ScriptedModel([calls(("notes__read_note", {"text": "roses"})), "They are red."])
    async with bots.open_bot(model) as bot:
        await discord.says(ANN, READ)
        thread = await discord.thread()
        await discord.wait_for_message(thread, "They are red.")
        assert discord.channels[thread]["name"] == READ
        assert bot.notes.calls == [("read_note", {"text": "roses"})]
        assert discord.own(CHANNEL) == []
        assert await packets(bot, thread) == [("discord:1", 0)]


@proves("T1")
async def test_a_thread_is_one_conversation_also_after_a_restart(bots: BotFactory) -> None:
    discord = bots.discord
    async with bots.open_bot(echo()) as bot:
        await discord.says(ANN, "hello, my name is Ann")
        thread = await discord.thread()
        await discord.wait_for_message(thread, "my name is Ann")
        # In our threads, the user who asked needs no mention; others do.
        await discord.says(BEN, "what a nice day", channel=thread, mention=False)
        await discord.says(ANN, "and I like roses", channel=thread, mention=False)
        await discord.wait_for_message(thread, "and I like roses")
        await discord.says(BEN, "hello, I am Ben", channel=thread)
        await discord.wait_for_message(thread, "I am Ben")
        assert await packets(bot, thread) == [("discord:1", 0), ("discord:1", 2), ("discord:2", 4)]
    model = echo()
    async with bots.open_bot(model) as bot:
        await discord.says(BEN, "who are we, do you think", channel=thread, mention=False)
        await discord.wait_for_message(thread, "who are we")
        prompt = [message.text for message in model.asked[-1].messages]
        assert any("my name is Ann" in text for text in prompt) and any("I am Ben" in text for text in prompt)


@proves("T1")
async def test_direct_messages_are_one_conversation_with_one_person(bots: BotFactory) -> None:
    discord = bots.discord
    async with bots.open_bot(echo()) as bot:
        await discord.writes(ANN, "hello in private")
        message = await discord.wait_for_message(discord.private(ANN), "hello in private")
        assert "message_reference" in message.raw
        await discord.writes(ANN, "hello again")
        await discord.wait_for_message(discord.private(ANN), "hello again")
        assert await packets(bot, discord.private(ANN)) == [("discord:1", 0), ("discord:1", 2)]


@proves("T1")
async def test_bots_webhooks_other_people_and_talk_among_others_are_left_alone(bots: BotFactory) -> None:
    discord = bots.discord
    async with bots.open_bot(echo(), servers=[str(GUILD)], users=["1", "7", str(BOT)]):
        await discord.says(DiscordUser(7, "robot", bot=True), "hello")
        await discord.says(SELF, "hello")
        await discord.says(ANN, "hello", webhook_id="5")
        await discord.says(ANN, "hello", mention=False)
        await discord.says(ANN, "joined", type=7)
        await discord.says(BEN, "hello, answer me")
        await discord.writes(BEN, "hello, answer me")
        await discord.says(ANN, "now somebody you know")  # what came before is dealt with by then
        thread = await discord.thread()
        await discord.wait_for_message(thread, "somebody you know")
        reply: dict[str, Any] = {
            "message_reference": {"message_id": "1", "channel_id": str(thread)},
            "type": 19,
        }
        await discord.says(ANN, "this is for Ben", channel=thread, mention=False, **reply)
        await discord.says(ANN, "hello once more", channel=thread)
        await discord.wait_for_message(thread, "hello once more")
        assert [len(discord.own(place)) for place in discord.messages] == [
            1,
            0,
            2,
        ]  # the one is "ours" from above


@proves("T1")
@pytest.mark.parametrize("settings", [{"roles": [str(ROLE)]}, {"servers": [str(GUILD)]}])
async def test_in_private_those_are_answered_who_are_on_the_server(
    bots: BotFactory, settings: dict[str, Any]
) -> None:
    discord = bots.discord
    async with bots.open_bot(echo(), **settings):
        await discord.writes(CLEO, "hello")  # she is on no server of ours
        await discord.writes(BEN, "hello, it is Ben")
        await discord.wait_for_message(discord.private(BEN), "it is Ben")
        assert discord.own(discord.private(CLEO)) == []


@proves("T1")
async def test_the_everyone_role_gives_no_permission(bots: BotFactory) -> None:
    discord = bots.discord
    async with bots.open_bot(echo(), roles=[str(GUILD)], users=["2"]):
        await discord.says(ANN, "hello from anybody")
        await discord.says(BEN, "hello from Ben")
        await discord.wait_for_message(await discord.thread(), "hello from Ben")
        assert sum(1 for raw in discord.channels.values() if raw["type"] == 11) == 1


@proves("T1")
async def test_one_request_at_a_time_few_wait_and_rates_are_limited(bots: BotFactory) -> None:
    discord = bots.discord
    room = discord.private(ANN)
    async with bots.open_bot(ScriptedModel(lambda _: HANG), max_waiting=1, requests_per_minute=3) as bot:
        await discord.writes(ANN, "the first")
        await discord.wait_for_message(room, "Reading your request")
        await discord.writes(ANN, "the second")
        await discord.writes(ANN, "the third")
        await discord.wait_for_message(room, "1 request waits here already")
        for _ in range(3):
            await discord.says(ANN, "somewhere else")
        await discord.wait_for_message(CHANNEL, "Too many requests")
        while not await packets(bot, room):  # noqa: ASYNC110 - the journal tells nobody
            await anyio.sleep(0.02)
        assert len(await packets(bot, room)) == 1
        assert len(discord.own(CHANNEL)) == 1  # shown once
    await discord.wait_for_message(room, "Stopped before the answer was ready")


@proves("T1")
async def test_a_question_is_answered_by_the_next_message_of_its_user(bots: BotFactory) -> None:
    discord = bots.discord
    async with bots.open_bot(ScriptedModel([]), max_waiting=5) as bot:
        bot.router.switches.set_mode("keyless")
        await discord.says(ANN, "Delete a note of the garden book")
        thread = await discord.thread()
        await discord.wait_for_message(thread, "Which of these do you mean?")
        await discord.says(BEN, "1", channel=thread)  # the question is not for him
        await discord.until(lambda: len(discord.own(thread)) == 2 and "…" not in discord.own(thread)[1].text)
        assert "text" not in discord.own(thread)[1].text
        await discord.says(ANN, "1", channel=thread, mention=False)
        await discord.until(lambda: any("text" in message.text for message in discord.own(thread)))
        await discord.says(ANN, "the one about roses", channel=thread, mention=False)
        asked = await discord.wait_for_message(thread, "needs approval")
        assert "the one about roses" in asked.text


@proves("T1")
async def test_without_leave_to_open_threads_the_answer_comes_where_it_was_asked(bots: BotFactory) -> None:
    discord = bots.discord
    async with bots.open_bot(echo()) as bot:
        discord.goes_wrong(
            "POST", r"/channels/200/messages/\d+/threads", 403, {"code": 50013, "message": "no"}
        )
        await discord.says(ANN, "hello there")
        await discord.wait_for_message(CHANNEL, "hello there")
        assert await packets(bot, CHANNEL) == [("discord:1", 0)]


async def test_a_mention_without_words_is_told_what_to_do(bots: BotFactory) -> None:
    discord = bots.discord
    async with bots.open_bot(echo()) as bot:
        await discord.says(ANN, "")
        await discord.wait_for_message(CHANNEL, "Ask me something")
        events = await bot.router.store.journal.list_events(kinds=(PacketReceived.kind,))
        assert events == []


@proves("T1")
async def test_names_of_others_stand_in_place_of_their_ids(bots: BotFactory) -> None:
    discord, model = bots.discord, echo()
    async with bots.open_bot(model):
        both: dict[str, Any] = {"mentions": [SELF.user(), BEN.user()]}
        await discord.says(ANN, f"is <@{BEN.id}> nice, <@!{BOT}>", **both)
        await discord.wait_for_message(await discord.thread(), "is @ben nice,")


@proves("T1")
async def test_requests_are_made_under_the_profile_of_the_settings(bots: BotFactory) -> None:
    discord = bots.discord
    script = ScriptedModel(lambda _: calls(("notes__delete_note", {"text": "roses"})))
    profiles = {"reader": {"effects": ["read"]}}
    async with bots.open_bot(script, profile="reader", profiles=profiles) as bot:
        await discord.says(ANN, "Delete the note about roses")
        thread = await discord.thread()
        await discord.until(lambda: discord.own(thread) and "…" not in discord.own(thread)[0].text)
        assert await bot.router.calls.approvals.list_waiting() == [] == bot.notes.calls
