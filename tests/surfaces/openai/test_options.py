"""How a request is to be answered: by the body, by headers, by the model's name, by the path."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from fingerpost.events import MemorySink, PacketReceived
from fingerpost.testing import ScriptedModel
from tests.kit.chat_completions import (
    CompletionsResponse,
    ServedCompletions,
    ask,
    open_served_completions,
    user,
)
from tests.requirements import proves

PROFILES = {"profiles": {"support": {"servers": ["notes"], "instructions": "Answer in rhymes."}}}
HELLO: dict[str, Any] = {"model": "fingerpost", "messages": [user("What time is it in Asia/Tokyo?")]}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def completions(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ServedCompletions]:
    """One endpoint for requests that leave no trace in it."""
    async with open_served_completions(tmp_path_factory.mktemp("manner"), talks(), **PROFILES) as opened:
        yield opened


def talks() -> ScriptedModel:
    return ScriptedModel(lambda request: "Good evening.")


def get_extension(answer: CompletionsResponse) -> Any:
    assert answer.status == 200, answer.json
    return answer.json["fingerpost"]


@proves("O4")
async def test_body_before_header_before_suffix(completions: ServedCompletions):
    single = {**HELLO, "model": "fingerpost:single"}
    plain = await ask(completions, HELLO)
    suffix = await ask(completions, single)
    header = await ask(completions, single, X_Fingerpost_Mode="keyless")
    body = await ask(completions, {**single, "fingerpost": {"mode": "simple"}}, X_Fingerpost_Mode="keyless")
    modes = [get_extension(answer)["mode"] for answer in (plain, suffix, header, body)]
    assert modes == ["simple", "single", "keyless", "simple"]
    assert suffix.json["model"] == "fingerpost:single"


@proves("O4")
async def test_the_client_says_it_with_extra_body(tmp_path: Path):
    model = talks()
    async with open_served_completions(tmp_path, model) as completions, completions.client() as client:
        await client.chat.completions.create(
            **HELLO, extra_body={"fingerpost": {"persona": "You are a lighthouse keeper.", "max_tools": 1}}
        )
    assert "lighthouse keeper" in model.asked[-1].messages[0].text


@proves("O4")
@pytest.mark.parametrize("way", ["path", "header", "body"])
async def test_a_profile_narrows_what_there_is(tmp_path: Path, way: str):
    model = talks()
    async with open_served_completions(tmp_path, model, **PROFILES) as completions:
        everything = await ask(completions, HELLO)
        path = "/v1/p/support/chat/completions" if way == "path" else "/v1/chat/completions"
        headers = {"X_Fingerpost_Profile": "support"} if way == "header" else {}
        body = {**HELLO, "fingerpost": {"profile": "support"}} if way == "body" else HELLO
        narrowed = await ask(completions, body, path=path, **headers)
    assert get_extension(everything)["tools_considered"] == 2
    assert get_extension(narrowed)["tools_considered"] == 1
    assert any("Answer in rhymes." in message.text for message in model.asked[-1].messages)


@proves("O5")
@pytest.mark.parametrize(
    ("more", "param", "words"),
    [
        ({"fingerpost": {"mode": "psychic"}}, "fingerpost.mode", "there are auto, staged"),
        ({"fingerpost": {"profile": "nobody"}}, "fingerpost.profile", "There are support."),
        ({"fingerpost": {"max_tools": 0}}, "fingerpost.max_tools", "whole number from 1"),
        ({"fingerpost": {"max_tools": True}}, "fingerpost.max_tools", "whole number from 1"),
        ({"fingerpost": {"seconds": "long"}}, "fingerpost.seconds", "number from 0.1"),
        ({"fingerpost": {"dry_run": "yes"}}, "fingerpost.dry_run", "true or false"),
        ({"fingerpost": {"colour": "red"}}, "fingerpost.colour", "knows mode, profile"),
        ({"fingerpost": []}, "fingerpost", "is an object"),
        ({"fingerpost": {"server": "attic"}}, None, "attic"),
    ],
)
async def test_wrong_values_are_named(
    completions: ServedCompletions, more: dict[str, Any], param: str | None, words: str
):
    answer = await ask(completions, {**HELLO, **more})
    assert (answer.status, answer.error["param"]) == (400, param)
    assert words in answer.error["message"]


async def test_wrong_headers_are_named(completions: ServedCompletions):
    attic = "/v1/p/attic/chat/completions"
    number = await ask(completions, HELLO, X_Fingerpost_Max_Tools="many")
    both = await ask(completions, {**HELLO, "fingerpost": {"profile": "support"}}, path=attic)
    nowhere = await ask(completions, HELLO, path=attic)
    assert (number.status, number.error["param"]) == (400, "x-fingerpost-max-tools")
    assert both.status == 400
    assert nowhere.status == 404


async def test_a_key_for_one_profile_means_that_one(completions: ServedCompletions):
    _, key = await completions.router.store.keys.add("desk", profiles=("support",))
    narrowed = await ask(completions, HELLO, authorization=f"Bearer {key}")
    assert get_extension(narrowed)["tools_considered"] == 1


async def test_names_with_colons_are_names(completions: ServedCompletions):
    """`qwen3:8b` is a model, `qwen3:8b:react` the same one asked as an agent."""
    agent = await ask(completions, {**HELLO, "model": "scripted:8b:keyless"})
    assert get_extension(agent)["mode"] == "keyless"


async def conversations(completions: ServedCompletions, *bodies: dict[str, Any]) -> list[str]:
    sink = MemorySink()
    completions.router.events.add(sink)
    for body in bodies:
        assert (await ask(completions, body)).status == 200
    return [event.packet.header.session_id for event in sink.events if isinstance(event, PacketReceived)]


async def test_a_conversation_keeps_its_id_while_it_grows(tmp_path: Path):
    first = [{"role": "system", "content": "Be kind."}, user("Hello!")]
    grown = [*first, {"role": "assistant", "content": "Good evening."}, user("And now?")]
    other = [{"role": "system", "content": "Be kind."}, user("Goodbye!")]
    async with open_served_completions(tmp_path, talks()) as completions:
        one, same, another, given = await conversations(
            completions,
            {"model": "fingerpost", "messages": first},
            {"model": "fingerpost", "messages": grown},
            {"model": "fingerpost", "messages": other},
            {"model": "fingerpost", "messages": other, "fingerpost": {"conversation": "mine"}},
        )
    assert one == same
    assert one.startswith("conv_")
    assert another != one
    assert given == "mine"


@proves("E5", "B12")
async def test_two_chats_that_begin_with_the_same_words_are_two_conversations(tmp_path: Path):
    first = [user("Hello!")]
    grown = [*first, {"role": "assistant", "content": "Good evening."}, user("And now?")]
    async with open_served_completions(tmp_path, talks()) as completions:
        bodies = [{"model": "fingerpost", "messages": messages} for messages in (first, first, grown, grown)]
        one, another, unclear, again = await conversations(completions, *bodies)
        # Both chats read the same so far: which of them goes on cannot be known, so it is neither.
        assert len({one, another, unclear, again}) == 4
        bodies = [{"model": "fingerpost", "messages": messages} for messages in (first, grown, first, grown)]
        one, same, another, other = await conversations(completions, *bodies)
    assert one == same
    assert another == other
    assert one != another


@proves("B12")
async def test_another_callers_conversation_is_another(tmp_path: Path):
    body = {"model": "fingerpost", "messages": [user("Hello!")], "fingerpost": {"conversation": "mine"}}
    async with open_served_completions(tmp_path, talks()) as completions:
        sink = MemorySink()
        completions.router.events.add(sink)
        _, key = await completions.router.store.keys.add("laptop")
        await ask(completions, body)
        await ask(completions, body, authorization=f"Bearer {key}")
    received = [event.packet.header for event in sink.events if isinstance(event, PacketReceived)]
    assert [header.session_id for header in received] == ["mine", "laptop/mine"]
    assert [header.caller for header in received] == ["local", "laptop"]
