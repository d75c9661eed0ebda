"""Choosing the servers of a conversation: when, by whom, once, and never at the conversation's cost."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from fingerpost.errors import ModelUnavailable
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.records import IntentMatch, Mention, Message, Signals
from fingerpost.settings import load
from fingerpost.testing import HANG, ScriptedModel
from tests.kit.server_picks import SERVERS, PickerFixture, build_scores, snapshot, write_choice
from tests.kit.tables import table
from tests.requirements import proves


@pytest.mark.slow
@proves("E1")
@table(
    ("servers", "tools", "on"),
    [(5, 7, True), (4, 100, False), (5, 6, False), (6, 5, False), (6, 6, True), (1, 500, False)],
)
async def test_it_switches_itself_on_above_both_thresholds(servers: int, tools: int, on: bool):
    catalog = snapshot([f"server{number}" for number in range(servers)], tools)
    picker = PickerFixture()
    scores = build_scores("server0", among=[f"server{number}" for number in range(servers)])
    choice = await picker.choose(tools=catalog, scores=scores)
    assert (choice.by == "scores") is on
    assert bool(choice.left_out) is on
    assert len(picker.sink.events) == (2 if on else 0)
    if not on:
        assert choice.by == "off"
        assert len(choice.servers) == servers


@proves("E1")
async def test_it_can_be_forced_on_and_off_and_the_thresholds_moved():
    small = snapshot(["mail", "maps", "music", "weather"], 2)
    few = build_scores("mail", among=["mail", "maps", "music", "weather"])
    assert (await PickerFixture(settings={"mode": "on"}).choose(tools=small, scores=few)).left_out
    assert (await PickerFixture(settings={"mode": "off"}).choose()).by == "off"
    assert (
        await PickerFixture(settings={"max_tools": 7, "max_servers": 3}).choose(tools=small, scores=few)
    ).left_out
    assert (await PickerFixture(settings={"max_tools": 8, "max_servers": 3}).choose(tools=small)).by == "off"


@proves("E1")
def test_the_thresholds_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("FINGERPOST_SMART_ROUTING__MAX_TOOLS", "99")
    monkeypatch.setenv("FINGERPOST_SMART_ROUTING__MODE", "on")
    settings = load().settings.smart_routing
    assert (settings.max_tools, settings.max_servers, settings.mode) == (99, 4, "on")


@proves("E2")
async def test_with_a_model_one_light_call_chooses():
    model = ScriptedModel([write_choice("mail", "calendar", reasoning="a date and an invitation")])
    picker = PickerFixture(model)
    choice = await picker.choose("invite Dana for Friday")
    assert choice.servers == ("calendar", "mail")
    assert choice.left_out == ("github", "maps", "music", "weather")
    assert (choice.by, choice.reasoning) == ("model", "a date and an invitation")
    (asked,) = model.asked
    assert (asked.temperature, asked.max_tokens) == (0.1, 300)
    assert asked.schema is not None
    assert asked.schema.name == "relevant_servers"
    assert picker.scored == 0


@proves("E4")
async def test_unknown_servers_are_passed_over_and_near_misses_understood():
    model = ScriptedModel([write_choice("GitHub", "e-mail-archive", "wether", "nonsense")])
    choice = await PickerFixture(model).choose("look it up")
    assert choice.servers == ("github", "weather")


@proves("E4")
async def test_a_server_named_in_the_request_is_never_left_out():
    for model in (ScriptedModel([write_choice("mail")]), None):
        choice = await PickerFixture(model).choose(
            "send it by mail and put on some MUSIC", scores=build_scores("mail")
        )
        assert {"mail", "music"} <= set(choice.servers)
        assert "weather" in choice.left_out


@proves("E4")
@table(
    ("line", "error"),
    [
        (
            ModelUnavailable("no answer from sk-abcdefghijklmnopqrstuv", model="m"),
            "ModelUnavailable: no answer",
        ),
        (RuntimeError("a bug in an adapter"), "RuntimeError: a bug"),
        (HANG, "did not choose within 0.2 s"),
        ("", "named no server"),
        (write_choice(), "named no server"),
        (write_choice("nonsense", "everything"), "named no server there is but nonsense, everything"),
        ("I am sorry, I cannot help with that.", "named no server"),
        (ModelReply(text="\x00" * 100_000, model="m"), "named no server"),
    ],
)
async def test_whatever_goes_wrong_all_tools_stay_and_the_developer_is_told(
    line: ModelReply | Exception | str, error: str
):
    picker = PickerFixture(ScriptedModel([line]), timeout=0.2)
    choice = await picker.choose(conversation="c1")
    assert choice.servers == SERVERS
    assert choice.left_out == ()
    (end,) = picker.ends
    assert end.success is False
    assert end.error is not None
    assert error in end.error
    assert "sk-abc" not in end.error
    assert (end.filtered_tools, end.tokens_saved) == (42, 0)


@proves("E4")
async def test_scores_that_cannot_be_had_leave_all_tools():
    picker = PickerFixture()

    def broken() -> dict[str, list[float]]:
        raise ZeroDivisionError

    choice = await picker.picker.pick("x", (), None, snapshot(), broken)
    assert choice.servers == SERVERS
    assert not picker.ends[0].success


@proves("E5")
async def test_a_model_decides_once_in_a_conversation_and_its_servers_are_kept():
    model = ScriptedModel([write_choice("mail"), write_choice("maps")])
    picker = PickerFixture(model)
    first = await picker.choose("write to Dana", conversation="one")
    later = await picker.choose("and to her brother", conversation="one", scores=build_scores("mail"))
    assert first.servers == later.servers == ("mail",)
    assert later.widened == ()
    assert (await picker.choose("find the way", conversation="two")).servers == ("maps",)
    assert len(model.asked) == len(picker.starts) == len(picker.ends) == 2


@proves("E5")
async def test_a_failure_is_decided_once_too():
    model = ScriptedModel([ModelUnavailable("gone", model="m")])
    picker = PickerFixture(model)
    for _ in range(3):
        assert (await picker.choose(conversation="one")).servers == SERVERS
    assert len(model.asked) == 1


@proves("E5")
async def test_a_greeting_does_not_decide_for_the_whole_conversation():
    picker = PickerFixture()
    flat = {name: [0.01] for name in SERVERS}
    assert (await picker.choose("hello there", conversation="one", scores=flat)).servers == SERVERS
    assert (await picker.choose("write to Dana", conversation="one")).servers == ("calendar", "mail", "maps")
    assert (await picker.choose("thanks!", conversation="one", scores=flat)).servers == SERVERS
    assert len(picker.ends) == 3


@proves("E5")
async def test_without_a_model_every_turn_is_chosen_for_anew():
    picker = PickerFixture()
    await picker.choose("write to Dana", conversation="one")
    choice = await picker.choose(
        "find a song", conversation="one", scores=build_scores("music", "github", "weather")
    )
    assert choice.servers == ("github", "music", "weather")


@proves("E5")
async def test_a_turn_whose_best_tools_lie_outside_a_models_choice_widens_it():
    picker = PickerFixture(ScriptedModel([write_choice("mail")]))
    await picker.choose("write to Dana", conversation="one")
    widened = await picker.choose("play it", conversation="one", scores=build_scores("music"))
    assert (widened.servers, widened.widened, widened.by) == (("mail", "music"), ("music",), "model")
    assert (await picker.choose("thanks", conversation="one")).servers == ("mail", "music")
    assert [(end.by, end.widened, end.relevant_servers) for end in picker.ends] == [
        ("model", (), ("mail",)),
        ("widened", ("music",), ("mail", "music")),
    ]
    assert picker.ends[1].reasoning == "music has one of the best tools (0.80)"


@proves("E5")
async def test_scores_that_cannot_be_had_in_a_later_turn_let_all_servers_in():
    picker = PickerFixture(ScriptedModel([write_choice("mail")]))
    await picker.choose(conversation="one")

    def broken() -> dict[str, list[float]]:
        raise ZeroDivisionError

    choice = await picker.picker.pick("x", (), "one", snapshot(), broken)
    assert choice.servers == SERVERS
    assert not picker.ends[1].success


@proves("E5")
async def test_a_choice_is_kept_for_its_caller_alone_and_not_for_ever():
    now = 0.0
    model = ScriptedModel(lambda _: write_choice("mail"))
    picker = PickerFixture(model, settings={"keep_minutes": 10}, clock=lambda: now)
    for caller in ("dana", "ruth", "dana"):
        await picker.choose(conversation="one", caller=caller)
    assert len(model.asked) == 2
    now = 10 * 60
    await picker.choose(conversation="one", caller="dana")
    assert len(model.asked) == 2
    now += 10 * 60 + 1
    await picker.choose(conversation="one", caller="dana")
    assert len(model.asked) == 3


@pytest.mark.slow
@proves("E5")
async def test_turns_that_arrive_together_share_one_call():
    model = ScriptedModel(lambda _: write_choice("mail"), seconds=0.1)
    picker = PickerFixture(model)
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(lambda: picker.choose(conversation="one"))
    assert len(model.asked) == 1
    assert len(picker.ends) == 1


@proves("E5")
async def test_when_the_first_turn_is_cancelled_the_next_one_takes_over():
    started = anyio.Event()

    async def slow_then_quick(_: ModelRequest) -> str:
        if not started.is_set():
            started.set()
            await anyio.sleep_forever()
        return write_choice("mail")

    picker = PickerFixture(ScriptedModel(slow_then_quick))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as others, anyio.create_task_group() as first:
            first.start_soon(lambda: picker.choose(conversation="one"))
            await started.wait()
            others.start_soon(lambda: picker.choose(conversation="one"))
            await anyio.sleep(0.02)
            first.cancel_scope.cancel()
    assert [end.error for end in picker.ends] == ["cancelled", None]
    assert (await picker.choose(conversation="one")).servers == ("mail",)


@proves("E5")
async def test_servers_that_join_or_leave_later_are_seen():
    picker = PickerFixture(ScriptedModel([write_choice("mail", "maps")]))
    await picker.choose(conversation="one")
    more = await picker.choose(conversation="one", tools=snapshot([*SERVERS, "notes"]))
    assert more.servers == ("mail", "maps", "notes")
    less = await picker.choose(
        conversation="one", tools=snapshot([name for name in SERVERS if name != "maps"])
    )
    assert less.servers == ("mail",)
    none = snapshot([name for name in SERVERS if name not in ("mail", "maps")] + ["news"])
    assert (await picker.choose(conversation="one", tools=none)).servers == ("news",)
    gone = snapshot(["calendar", "github", "music", "weather"], 20)
    picker = PickerFixture(ScriptedModel([write_choice("mail")]), settings={"max_servers": 1})
    await picker.choose(conversation="one")
    assert len((await picker.choose(conversation="one", tools=gone)).servers) == 4


@proves("E5")
async def test_a_server_the_person_names_later_is_let_in_and_stays():
    picker = PickerFixture(ScriptedModel([write_choice("mail")]))
    await picker.choose("write to Dana", conversation="one")
    assert (await picker.choose("check the weather too", conversation="one")).servers == ("mail", "weather")
    assert (await picker.choose("thanks", conversation="one")).servers == ("mail", "weather")


@proves("E5")
async def test_without_a_conversation_nothing_is_remembered():
    model = ScriptedModel(lambda _: write_choice("mail"))
    picker = PickerFixture(model)
    await picker.choose()
    await picker.choose()
    assert len(model.asked) == 2


async def test_only_so_many_conversations_are_remembered():
    model = ScriptedModel(lambda _: write_choice("mail"))
    picker = PickerFixture(model, conversations=2)
    for conversation in ("a", "b", "a", "c", "a", "b"):  # c drops b, the longest unused
        await picker.choose(conversation=conversation)
    assert len(model.asked) == 4


@proves("E6")
async def test_a_choice_stands_between_two_events_that_tell_everything():
    picker = PickerFixture(ScriptedModel([write_choice("mail", reasoning="a letter")]))
    await picker.choose("write", conversation="one")
    (start,), (end,) = picker.starts, picker.ends
    assert (start.kind, end.kind) == ("smart_routing_start", "smart_routing_end")
    assert picker.sink.events == (start, end)
    assert (start.packet_id, start.conversation) == (end.packet_id, end.conversation) == ("pkt_1", "one")
    assert (start.total_tools, start.total_servers, start.max_tools, start.max_servers) == (42, 6, 30, 4)
    assert (end.total_tools, end.filtered_tools, end.total_servers) == (42, 7, 6)
    assert (end.relevant_servers, end.reasoning, end.by) == (("mail",), "a letter", "model")
    assert end.success
    assert end.error is None
    assert end.milliseconds > 0


@proves("E7")
async def test_the_tokens_of_the_definitions_left_out_are_saved():
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return 10

    picker = PickerFixture(ScriptedModel(lambda _: write_choice("mail")), count=count)
    await picker.choose("write")
    await picker.choose("write again")
    assert [end.tokens_saved for end in picker.ends] == [350, 350]
    assert len(counted) == 35  # each definition once
    assert '"github__github_0"' in "".join(counted)


@proves("E4")
async def test_without_a_model_mentions_and_intents_keep_servers():
    signals = Signals(
        mentions=(Mention(kind="tool", name="github/github_3", text="github_3"),),
        intents=(IntentMatch(category="time_place", score=0.5), IntentMatch(category="code", score=0.1)),
    )
    scores = build_scores("mail", "music", "calendar")
    choice = await PickerFixture().choose("look", scores=scores, signals=signals)
    assert set(choice.servers) == {"calendar", "mail", "music", "github", "maps", "weather"}
    plain = await PickerFixture().choose("look", scores=scores)
    assert set(plain.servers) == {"calendar", "mail", "music"}


async def test_any_request_and_history_get_an_answer():
    for text in ("", "\ud800", "🎺" * 1000, "x" * 1_000_000, "שלום 你好 hello"):
        for model in (None, ScriptedModel(lambda _: write_choice("mail"))):
            history = (Message(role="user", text=text), Message(role="", text="\x00"))
            choice = await PickerFixture(model).choose(text, history=history)
            assert choice.servers
