"""`fingerpost route` and `fingerpost why` as a person sees them."""

from __future__ import annotations

import json

import pytest

from tests.kit.command_line import CommandLine, tool
from tests.requirements import proves

pytestmark = pytest.mark.process

WORDS_ALONE = "[flags]\ndense_scores = false\n"


@pytest.fixture
def clerk(person: CommandLine) -> CommandLine:
    person.has(
        "calendar",
        [
            tool("create_event", "Put an event into the calendar."),
            tool("list_events", "List calendar events."),
        ],
    )
    person.has("weather", [tool("get_forecast", "The weather forecast for a city: rain and temperature.")])
    person.has(
        "mail", [tool("send_email", "Send an email to somebody."), tool("delete_email", "Delete mail.")]
    )
    person.writes("fingerpost.toml", WORDS_ALONE)
    return person


@proves("D3", "D4", "A2")
def test_a_request_is_routed_and_every_score_is_explained(clerk: CommandLine) -> None:
    found = clerk.reads("route", "send an email to dana@example.com with the minutes")
    assert found["offered"][0] == "mail/send_email"
    assert found["narrowing"]["need"]["verdict"] == "tool"
    best = found["narrowing"]["shortlist"]["candidates"][0]
    assert best["tool"] == "mail/send_email"
    assert {part["signal"] for part in best["parts"]} >= {"words", "server"}


@proves("D3")
def test_the_picture_names_the_need_the_tools_and_the_losers(clerk: CommandLine) -> None:
    request = "check the weather forecast and send an email to Dana about it"
    short = clerk.runs("route", request)
    assert short.returncode == 0, short.stderr
    assert "Tool needed?   Yes" in short.stdout
    assert "weather/get_forecast" in short.stdout
    assert "mail/send_email" in short.stdout
    assert "Part 2" in short.stdout
    assert "▓" in short.stdout
    assert "\x1b[" not in short.stdout
    assert "not offered" not in short.stdout
    whole = clerk.runs("route", "--explain", request).stdout
    assert "not offered" in whole
    assert "calendar/list_events" in whole
    trace = short.stdout.rpartition("trace ")[2].strip()
    journey = clerk.runs("trace", trace).stdout
    assert f"asked {request}" in journey
    assert "narrowed tool needed: tool" in journey
    assert "weather/get_forecast 0." in journey


@proves("D3")
def test_it_is_explained_how_certain_it_is_that_an_offered_tool_reads(clerk: CommandLine) -> None:
    request = ("--max-tools", "2", "weather forecast, or send an email")
    schema = {"type": "object", "properties": {"url": {"type": "string"}}}
    fetch = tool("fetch_forecast", "Fetch the weather forecast from a page.", inputSchema=schema)
    clerk.has("weather", [fetch])
    whole = clerk.runs("route", "--explain", *request).stdout
    effects = whole.partition("\neffects")[2]
    (row,) = [line for line in effects.splitlines() if "weather/fetch_forecast" in line]
    text = " ".join(effects.split())
    assert row.split()[1:3] == ["read?", "no"]
    assert "change it with `pins reads`" in text
    assert "\neffects" not in clerk.runs("route", *request).stdout


@proves("D4")
def test_the_number_of_tools_and_the_server_can_be_chosen(clerk: CommandLine) -> None:
    assert len(clerk.reads("route", "--max-tools", "1", "weather and email")["offered"]) == 1
    only = clerk.reads("route", "--server", "mail", "weather forecast, or send an email")
    assert all(key.startswith("mail/") for key in only["offered"])
    unknown = clerk.runs("route", "--server", "mial", "anything")
    assert unknown.returncode == 3
    assert "Did you mean mail" in unknown.stderr


@proves("E11", "D3", "N1")
def test_a_hidden_tool_is_named_with_its_rule_and_never_offered(clerk: CommandLine) -> None:
    rule = '[[policy]]\nverdict = "deny"\ntool = "mail/send_email"\nreason = "no mail from here"\n'
    clerk.writes("fingerpost.toml", WORDS_ALONE + rule)
    done = clerk.runs("route", "--explain", "send an email to Dana")
    hidden = done.stdout.partition("\nhidden")[2]
    assert "mail/send_email" in hidden
    assert "no mail from here" in hidden
    assert done.stdout.count("mail/send_email") == 1
    why = clerk.runs("why", "mail/send_email", "send an email to Dana")
    assert why.returncode == 1
    assert "is hidden by rule 1 in fingerpost.toml: no mail from here." in why.stdout


@proves("D3", "N4")
def test_why_answers_in_sentences_for_winners_and_losers(clerk: CommandLine) -> None:
    won = clerk.runs("why", "get_forecast", "weather forecast for Oslo")
    assert won.returncode == 0
    assert "weather/get_forecast is offered, number 1 of" in won.stdout
    lost = clerk.reads("why", "list_events", "weather forecast for Oslo")
    assert lost["offered"] is False
    assert lost["because"][0].startswith("calendar/list_events is not offered: scored")
    assert any(line.startswith("weather/get_forecast, which is offered") for line in lost["because"])


@proves("D3")
def test_why_a_tool_is_not_even_there(clerk: CommandLine) -> None:
    clerk.writes("fingerpost.toml", WORDS_ALONE + '[[tools]]\nmatch = "mail/delete_email"\nenabled = false\n')
    clerk.has("gone", command="no-such-program")
    assert "switched off" in clerk.runs("why", "mail/delete_email", "delete mail").stdout
    assert "its server gone is down" in clerk.runs("why", "gone/search", "search").stdout
    unknown = clerk.runs("why", "mail/sned_email", "send an email").stdout
    assert "No tool is called 'mail/sned_email'" in unknown
    assert "mail/send_email" in unknown


@proves("D3")
def test_why_a_changed_tool_is_held_back(clerk: CommandLine) -> None:
    clerk.runs("tools")
    clerk.has("weather", [tool("get_forecast", "Something else entirely.")])
    clerk.runs("servers", "--connect")
    done = clerk.runs("why", "weather/get_forecast", "weather forecast")
    assert done.returncode == 1
    assert "definition changed" in done.stdout
    assert "fingerpost pins diff weather/get_forecast" in done.stdout


def test_nothing_to_offer_is_said_with_an_exit_code(person: CommandLine) -> None:
    person.has("gone", command="no-such-program")
    person.writes("fingerpost.toml", WORDS_ALONE)
    done = person.runs("route", "send an email")
    assert done.returncode == 1
    assert "No tool is offered." in done.stdout


@proves("H4")
def test_secrets_in_a_request_are_not_printed(clerk: CommandLine) -> None:
    secret = "sk-live-0123456789abcdefghijklmnop"
    shown = clerk.runs("route", "--explain", f"send an email with api_key={secret} and check the weather")
    assert secret not in shown.stdout + shown.stderr
    assert secret not in json.dumps(clerk.reads("route", f"send an email with api_key={secret}"))


@proves("E4")
def test_why_a_tool_of_a_server_that_was_not_chosen_is_not_offered(clerk: CommandLine) -> None:
    for number in range(4):
        many = [tool(f"box_{place}", f"Box {place} of archive {number}.") for place in range(10)]
        clerk.has(f"archive{number}", many)
    found = clerk.runs("route", "will it rain in Oslo tomorrow? show the weather forecast")
    assert "of 7, chosen by scores" in found.stdout
    why = clerk.runs("why", "archive3/box_1", "will it rain in Oslo tomorrow? show the weather forecast")
    assert why.returncode == 1
    assert "archive3 was not." in why.stdout
