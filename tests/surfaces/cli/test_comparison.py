"""`fingerpost compare`: with and without routing, on real servers, with and without a model."""

from __future__ import annotations

from typing import Any

import anyio.to_thread
import pytest
from starlette.responses import Response

from fingerpost.testing import served
from tests.kit.command_line import CommandLine, tool
from tests.kit.model_server import ModelServer, create_error, create_reply
from tests.requirements import proves

pytestmark = pytest.mark.process

WORDS_ALONE = "[flags]\ndense_scores = false\n"
TOPICS = {
    "calendar": "events and appointments in the calendar",
    "mail": "email letters to people",
    "maps": "routes and places on the map",
    "music": "songs and playlists to listen to",
    "weather": "the weather forecast, rain and temperature",
}


@pytest.fixture
def clerk(person: CommandLine) -> CommandLine:
    """Five servers of seven tools: above both thresholds."""
    for name, about in TOPICS.items():
        verbs = ("find", "list", "create", "update", "delete", "share", "count")
        person.has(name, [tool(f"{verb}_{name}", f"{verb.title()} {about}.") for verb in verbs])
    person.writes("fingerpost.toml", WORDS_ALONE)
    return person


@proves("E9")
def test_tools_tokens_and_time_stand_side_by_side(clerk: CommandLine) -> None:
    found = clerk.reads("compare", "what is the weather forecast for Oslo, will there be rain?")
    without, chosen, routed = found["without"], found["chosen"], found["routed"]
    assert (without["tools"], without["servers"]) == (35, 5)
    assert chosen["tools"] < 35
    assert 1 <= routed["tools"] <= 4
    assert without["tokens"] > chosen["tokens"] > routed["tokens"] > 0
    assert found["saved"]["tools"] == pytest.approx(1 - routed["tools"] / 35, abs=0.001)
    assert found["saved"]["tokens"] > 0.3
    assert found["saved"]["model_time"] is None
    assert found["added_ms"] >= found["choosing_ms"] > 0
    assert any(name.startswith("weather/") for name in found["offered"])


@proves("E9")
def test_a_person_gets_a_table_and_the_ratio(clerk: CommandLine) -> None:
    done = clerk.runs("compare", "put lunch with Dana into the calendar")
    assert done.returncode == 0, done.stderr
    for words in ("without routing", "with routing", "tools of the chosen servers", "tokens of definitions"):
        assert words in done.stdout
    assert "Routing leaves out" in done.stdout
    assert "% of the tools" in done.stdout
    assert "model ms" not in done.stdout


@proves("E9")
async def test_with_a_model_one_completion_each_way_is_measured(clerk: CommandLine) -> None:
    def answer(body: dict[str, Any]) -> Response:
        if "tools" not in body:
            return create_reply('{"relevant_servers": ["weather"], "reasoning": "rain"}')
        tokens = {"prompt_tokens": 10 * len(body["tools"]), "completion_tokens": 1}
        return create_reply("looking", usage=tokens)

    model = ModelServer(answer)
    async with served(model.app) as address:
        clerk.writes(
            "fingerpost.toml", f'{WORDS_ALONE}[models.lite]\nmodel = "tiny"\nbase_url = "{address}/v1"\n'
        )
        found = await anyio.to_thread.run_sync(clerk.reads, "compare", "will it rain in Oslo?")
    _, whole_before, few_before, choosing, whole, few = model.asked  # each way once before it is measured
    assert (whole_before["max_tokens"], few_before["max_tokens"]) == (1, 1)
    assert choosing["temperature"] == 0.1
    assert len(whole["tools"]) == 35
    assert len(few["tools"]) == found["routed"]["tools"]
    assert found["chosen"]["servers"] == 1
    assert found["without"]["model"]["tokens"] == 351
    assert found["routed"]["model"]["tokens"] == 10 * found["routed"]["tools"] + 1
    assert found["without"]["model"]["milliseconds"] > 0
    assert found["saved"]["model_time"] is not None


@proves("E9")
async def test_a_model_that_refuses_so_many_tools_is_a_result_too(clerk: CommandLine) -> None:
    def answer(body: dict[str, Any]) -> Response:
        many = len(body.get("tools", ())) > 20
        return create_error(400, "too many tools", param="tools") if many else create_reply("weather")

    async with served(ModelServer(answer).app) as address:
        clerk.writes(
            "fingerpost.toml", f'{WORDS_ALONE}[models.lite]\nmodel = "tiny"\nbase_url = "{address}/v1"\n'
        )
        done = await anyio.to_thread.run_sync(clerk.runs, "compare", "will it rain in Oslo?")
    assert done.returncode == 0, done.stderr
    assert "without routing: tiny refused the request (status 400): too many tools" in done.stdout


@proves("E4", "E12")
def test_the_self_test_makes_choosing_servers_fail_and_all_tools_stay(clerk: CommandLine) -> None:
    found = clerk.reads("compare", "--self-test")
    assert len(found) == 4
    assert all(one["right"] and one["tools"] == one["of"] == 35 and one["error"] for one in found)


@proves("E7", "E12")
def test_thresholds_are_given_as_options_and_what_choosing_did_is_told(clerk: CommandLine) -> None:
    assert clerk.reads("compare", "--recorded")["runs"] == 0
    for options, chosen in (
        (("--smart-routing", "off"), False),
        (("--smart-routing-tools", "34"), True),
        (("--smart-routing-tools", "35"), False),
        (("--smart-routing", "on", "--smart-routing-servers", "99"), True),
    ):
        routed = clerk.reads("route", *options, "will it rain in Oslo?")
        choice: Any = routed["narrowing"].get("servers")
        assert (choice is not None and bool(choice.get("left_out"))) is chosen, options
    figures = clerk.reads("compare", "--recorded")
    assert (figures["runs"], figures["fallback_rate"]) == (2, 0.0)
    assert figures["reduction"] > 0.3


def test_without_any_tool_there_is_nothing_to_compare(person: CommandLine) -> None:
    person.has("empty", [])
    person.writes("fingerpost.toml", WORDS_ALONE)
    assert person.runs("compare", "hello").returncode == 1


@proves("E9")
async def test_many_requests_give_their_mean_and_any_model_will_do(clerk: CommandLine) -> None:
    requests = clerk.writes("requests.txt", 'will it rain in Oslo?\n{"query": "play a song"}\n\n')

    def answer(body: dict[str, Any]) -> Response:
        if "tools" not in body:
            return create_reply('{"relevant_servers": ["weather", "music"], "reasoning": "rain, songs"}')
        tokens = {"prompt_tokens": 10 * len(body["tools"]), "completion_tokens": 0}
        return create_reply("looking", usage=tokens)

    model = ModelServer(answer)
    async with served(model.app) as address:
        clerk.writes(
            "fingerpost.toml", f'{WORDS_ALONE}[models.prime]\nmodel = "good"\nbase_url = "{address}/v1"\n'
        )
        found = await anyio.to_thread.run_sync(clerk.reads, "compare", "--requests", str(requests))
        shown = await anyio.to_thread.run_sync(clerk.runs, "compare", "--requests", str(requests))
    first, second = found["requests"]
    assert (first["request"], second["request"]) == ("will it rain in Oslo?", "play a song")
    mean = found["mean"]
    assert mean["without"]["tools"] == 35
    assert mean["routed"]["tools"] == (first["routed"]["tools"] + second["routed"]["tools"]) / 2
    assert mean["routed"]["model"]["tokens"] == 10 * mean["routed"]["tools"]
    assert mean["saved"]["tools"] == pytest.approx(1 - mean["routed"]["tools"] / 35, abs=0.001)
    assert "2 requests, on average" in shown.stdout


@pytest.mark.parametrize(
    "arguments", [(), ("hello", "--requests", "requests.txt"), ("--requests", "empty.txt")]
)
def test_a_request_is_needed_from_one_place(clerk: CommandLine, arguments: tuple[str, ...]) -> None:
    clerk.writes("requests.txt", "hello\n")
    clerk.writes("empty.txt", "\n\n")
    assert clerk.runs("compare", *arguments).returncode == 2


@proves("E9", "E5")
async def test_route_asks_no_model_unless_it_is_told_to(clerk: CommandLine) -> None:
    model = ModelServer(lambda _: create_reply('{"relevant_servers": ["weather"], "reasoning": "rain"}'))
    request = "will it rain in Oslo?"
    async with served(model.app) as address:
        clerk.writes(
            "fingerpost.toml", f'{WORDS_ALONE}[models.lite]\nmodel = "tiny"\nbase_url = "{address}/v1"\n'
        )
        found = await anyio.to_thread.run_sync(clerk.reads, "route", request)
        assert model.asked == []
        assert found["narrowing"]["servers"]["by"] != "model"
        found = await anyio.to_thread.run_sync(clerk.reads, "route", "--ask-model", request)
    assert len(model.asked) == 1
    assert found["narrowing"]["servers"]["by"] == "model"
