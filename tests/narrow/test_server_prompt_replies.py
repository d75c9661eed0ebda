"""What models answer instead of what they were asked for, understood as far as it can be."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.narrow.server_prompt import ServerNames, parse_server_choice
from tests.kit.tables import table
from tests.requirements import proves

SERVERS = ("aws-costs", "github", "google-maps", "mail", "postgres_main", "time", "יומן")
NAMES = ServerNames(SERVERS)

names = st.lists(st.sampled_from(SERVERS), min_size=1, max_size=5, unique=True)


@proves("E2")
@table(
    "reply",
    [
        '{"relevant_servers": ["github", "mail"], "reasoning": "x"}',
        '{"relevant_servers": ["github", 7, null, "mail"]}',
        '{"relevant_servers": [{"name": "github"}, {"server": "mail"}]}',
        'Sure! Here you go:\n```json\n{"relevant_servers": ["github", "mail"]}\n```',
        '<think>maybe google-maps?</think> {"relevant_servers": ["github", "mail"]}',
        '{"relevant_servers": ["github", "mail"], "reasoning": "because the person wants to',
        '{"relevant_servers": ["github", "mail", "goog',
        '["github", "mail"]',
        "github,mail",
        "github, mail.",
        "RELEVANT SERVERS: github, mail",
        "1. github\n2. mail",
        "- **GitHub** (issues)\n- `mail`: to tell Dana",
        "* Github server\n* the mail server",
        "I would use github and mail for this.",
        "githb; mail",
    ],
)
def test_the_servers_are_found_in(reply: str):
    assert sorted(parse_server_choice(reply, NAMES).servers) == ["github", "mail"]


@proves("E4")
@table(
    ("written", "server"),
    [
        ("AWS Costs", "aws-costs"),
        ("aws_costs", "aws-costs"),
        ("awsCosts", "aws-costs"),
        ("aws-cost", "aws-costs"),
        ("google maps server", "google-maps"),
        ("GoogleMaps MCP", "google-maps"),
        ("postgres-main", "postgres_main"),
        ("postgress_main", "postgres_main"),
        ('"time"', "time"),
        ("יומן", "יומן"),
        ("timer", "time"),
        ("tim", None),
        ("slack", None),
        ("", None),
        ("---", None),
    ],
)
def test_a_name_spelt_nearly_right_is_understood(written: str, server: str | None):
    assert NAMES.resolve(written) == server


def test_names_stand_in_running_text_as_words_of_their_own():
    assert NAMES.find_in_text("Open Google Maps, then e-mail; the timeline of postgres_main") == (
        "google-maps",
        "mail",
        "postgres_main",
    )


def test_the_names_that_do_not_exist_are_told():
    picked = parse_server_choice('{"relevant_servers": ["github", "jira", "jira", "s3"]}', NAMES)
    assert picked.servers == ("github",)
    assert picked.unknown == ("jira", "s3")


@given(names, st.sampled_from([", ", "\n", "; ", "\n- ", "\n* ", " and "]))
def test_any_list_of_names_is_read_back(servers: list[str], joint: str):
    assert set(parse_server_choice(joint.join(servers), NAMES).servers) == set(servers)


@given(names, st.text(max_size=60))
def test_the_object_is_read_back_whatever_stands_around_it(servers: list[str], around: str):
    reply = f"{around.replace('{', '').replace('[', '')}\n{json.dumps({'relevant_servers': servers})}"
    assert set(servers) <= set(parse_server_choice(reply, NAMES).servers)


@pytest.mark.slow
@given(st.text(max_size=500) | st.text(alphabet='relvant_s{}[]",:\\\n-* githubmail12.', max_size=300))
def test_only_servers_there_are_come_out_of_any_text(reply: str):
    assert set(parse_server_choice(reply, NAMES).servers) <= set(SERVERS)


@pytest.mark.slow
@table("reply", ['"' * 500_000, "[" * 500_000, "github\n" * 100_000, '{"relevant_servers": [' * 9])
def test_a_huge_reply_is_read_in_bounded_work(reply: str):
    assert set(parse_server_choice(reply, NAMES).servers) <= {"github"}
