"""Mentions and direct messages become requests, threads conversations."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from fingerpost.events import PacketReceived
from fingerpost.testing import HANG, ScriptedModel, calls
from tests.kit.discord_api import ANN, BEN, BOT, CHANNEL, CLEO, GUILD, ROLE, SELF, Someone
from tests.kit.discord_bot import Garden, House
from tests.requirements import proves

READ = "Read the note about roses in the garden book"


def echo() -> ScriptedModel:
    """Says what it was told last."""
    return ScriptedModel(lambda request: f"You said: {request.messages[-1].text[-60:]}")


async def packets(house: House, conversation: int) -> list[tuple[str | None, int]]:
    await house.router.store.journal.flush()
    found = await house.router.store.journal.list_session_packets(f"discord:{conversation}")
    return [(packet.header.caller, packet.context.message_count) for packet in reversed(found)]


@proves("A18", "T1")
async def test_a_mention_opens_a_thread_and_is_answered_there(garden: Garden) -> None:
    discord = garden.discord
    model = ScriptedModel([calls(("notes__read_note", {"text": "roses"})), "They are red."])
    async with garden.house(model) as house:
        await discord.says(ANN, READ)
        thread = await discord.thread()
        await discord.said(thread, "They are red.")
        assert discord.channels[thread]["name"] == READ
        assert house.notes.calls == [("read_note", {"text": "roses"})]
        assert discord.own(CHANNEL) == []
        assert await packets(house, thread) == [("discord:1", 0)]


@proves("T1")
async def test_a_thread_is_one_conversation_also_after_a_restart(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(echo()) as house:
        await discord.says(ANN, "hello, my name is Ann")
        thread = await discord.thread()
        await discord.said(thread, "my name is Ann")
        # Whoever asked before needs no mention in a thread of ours; others do.
        await discord.says(BEN, "what a nice day", channel=thread, mention=False)
        await discord.says(ANN, "and I like roses", channel=thread, mention=False)
        await discord.said(thread, "and I like roses")
        await discord.says(BEN, "hello, I am Ben", channel=thread)
        await discord.said(thread, "I am Ben")
        assert await packets(house, thread) == [("discord:1", 0), ("discord:1", 2), ("discord:2", 4)]
    model = echo()
    async with garden.house(model) as house:
        await discord.says(BEN, "who are we, do you think", channel=thread, mention=False)
        await discord.said(thread, "who are we")
        told = [message.text for message in model.asked[-1].messages]
        assert any("my name is Ann" in text for text in told) and any("I am Ben" in text for text in told)


@proves("T1")
async def test_direct_messages_are_one_conversation_with_one_person(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(echo()) as house:
        await discord.writes(ANN, "hello in private")
        said = await discord.said(discord.private(ANN), "hello in private")
        assert "message_reference" in said.raw
        await discord.writes(ANN, "hello again")
        await discord.said(discord.private(ANN), "hello again")
        assert await packets(house, discord.private(ANN)) == [("discord:1", 0), ("discord:1", 2)]


@proves("T1")
async def test_bots_webhooks_other_people_and_talk_among_others_are_left_alone(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(echo(), servers=[str(GUILD)], users=["1", "7", str(BOT)]):
        await discord.says(Someone(7, "robot", bot=True), "hello")
        await discord.says(SELF, "hello")
        await discord.says(ANN, "hello", webhook_id="5")
        await discord.says(ANN, "hello", mention=False)
        await discord.says(ANN, "joined", type=7)
        await discord.says(BEN, "hello, answer me")
        await discord.writes(BEN, "hello, answer me")
        await discord.says(ANN, "now somebody you know")  # what came before is dealt with by then
        thread = await discord.thread()
        await discord.said(thread, "somebody you know")
        reply: dict[str, Any] = {
            "message_reference": {"message_id": "1", "channel_id": str(thread)},
            "type": 19,
        }
        await discord.says(ANN, "this is for Ben", channel=thread, mention=False, **reply)
        await discord.says(ANN, "hello once more", channel=thread)
        await discord.said(thread, "hello once more")
        assert [len(discord.own(place)) for place in discord.messages] == [
            1,
            0,
            2,
        ]  # the one is "ours" from above


@proves("T1")
@pytest.mark.parametrize("settings", [{"roles": [str(ROLE)]}, {"servers": [str(GUILD)]}])
async def test_in_private_those_are_answered_who_are_on_the_server(
    garden: Garden, settings: dict[str, Any]
) -> None:
    discord = garden.discord
    async with garden.house(echo(), **settings):
        await discord.writes(CLEO, "hello")  # she is on no server of ours
        await discord.writes(BEN, "hello, it is Ben")
        await discord.said(discord.private(BEN), "it is Ben")
        assert discord.own(discord.private(CLEO)) == []


@proves("T1")
async def test_the_role_that_everybody_has_is_nobodys_leave(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(echo(), roles=[str(GUILD)], users=["2"]):
        await discord.says(ANN, "hello from anybody")
        await discord.says(BEN, "hello from Ben")
        await discord.said(await discord.thread(), "hello from Ben")
        assert sum(1 for raw in discord.channels.values() if raw["type"] == 11) == 1


@proves("T1")
async def test_one_request_at_a_time_few_wait_and_nobody_asks_too_often(garden: Garden) -> None:
    discord = garden.discord
    room = discord.private(ANN)
    async with garden.house(ScriptedModel(lambda _: HANG), max_waiting=1, requests_per_minute=3) as house:
        await discord.writes(ANN, "the first")
        await discord.said(room, "Reading your request")
        await discord.writes(ANN, "the second")
        await discord.writes(ANN, "the third")
        await discord.said(room, "1 request waits here already")
        for _ in range(3):
            await discord.says(ANN, "somewhere else")
        await discord.said(CHANNEL, "You ask more often than I may answer")
        while not await packets(house, room):  # noqa: ASYNC110 - the journal tells nobody
            await anyio.sleep(0.02)
        assert len(await packets(house, room)) == 1
        assert len(discord.own(CHANNEL)) == 1  # told once
    await discord.said(room, "I was stopped before there was an answer")


@proves("T1")
async def test_a_question_is_answered_by_the_next_message_of_whoever_asked(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(ScriptedModel([]), max_waiting=5) as house:
        house.router.switches.set_mode("keyless")
        await discord.says(ANN, "Delete a note of the garden book")
        thread = await discord.thread()
        await discord.said(thread, "Which of these do you mean?")
        await discord.says(BEN, "1", channel=thread)  # the question is not for him
        await discord.until(lambda: len(discord.own(thread)) == 2 and "…" not in discord.own(thread)[1].text)
        assert "text" not in discord.own(thread)[1].text
        await discord.says(ANN, "1", channel=thread, mention=False)
        await discord.until(lambda: any("text" in said.text for said in discord.own(thread)))
        await discord.says(ANN, "the one about roses", channel=thread, mention=False)
        asked = await discord.said(thread, "waits for approval")
        assert "the one about roses" in asked.text


@proves("T1")
async def test_without_leave_to_open_threads_the_answer_comes_where_it_was_asked(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(echo()) as house:
        discord.goes_wrong(
            "POST", r"/channels/200/messages/\d+/threads", 403, {"code": 50013, "message": "no"}
        )
        await discord.says(ANN, "hello there")
        await discord.said(CHANNEL, "hello there")
        assert await packets(house, CHANNEL) == [("discord:1", 0)]


async def test_a_mention_without_words_is_told_what_to_do(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(echo()) as house:
        await discord.says(ANN, "")
        await discord.said(CHANNEL, "Ask me something")
        events = await house.router.store.journal.list_events(kinds=(PacketReceived.kind,))
        assert events == []


@proves("T1")
async def test_names_of_others_stand_in_place_of_their_ids(garden: Garden) -> None:
    discord, model = garden.discord, echo()
    async with garden.house(model):
        both: dict[str, Any] = {"mentions": [SELF.user(), BEN.user()]}
        await discord.says(ANN, f"is <@{BEN.id}> nice, <@!{BOT}>", **both)
        await discord.said(await discord.thread(), "is @ben nice,")


@proves("T1")
async def test_requests_are_made_under_the_profile_of_the_settings(garden: Garden) -> None:
    discord = garden.discord
    script = ScriptedModel(lambda _: calls(("notes__delete_note", {"text": "roses"})))
    profiles = {"reader": {"effects": ["read"]}}
    async with garden.house(script, profile="reader", profiles=profiles) as house:
        await discord.says(ANN, "Delete the note about roses")
        thread = await discord.thread()
        await discord.until(lambda: discord.own(thread) and "…" not in discord.own(thread)[0].text)
        assert await house.router.calls.approvals.list_waiting() == [] == house.notes.calls
