"""Secrets are masked by what they are and by what they are called."""

from __future__ import annotations

import secrets
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost import redaction
from fingerpost.redaction import MASK, is_secret_name, is_secret_setting, register_secret, scrub, scrub_json
from tests.kit.tables import table
from tests.requirements import proves

CANARIES = [
    "sk-proj-abcdefghijklmnop1234567890",
    "sk-ant-api03-abcdefghijklmnop1234567890",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0abcdefghijklmnop",
    "glpat-abcdefghijklmnop1234",
    "xoxb-1234567890-abcdefghij",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_123",
    "sk_live_abcdefghij0123456789",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
]


@proves("F49")
@table("secret", CANARIES)
def test_a_known_shape_is_masked_wherever_it_stands(secret: str) -> None:
    text = f"before {secret} after"
    assert scrub(text) == f"before {MASK} after"
    assert secret not in str(scrub_json({"a": [text, {"b": secret}]}))


@proves("F49")
@table(
    ("text", "clean"),
    [
        ("Authorization: Bearer abcdefgh12345678", f"Authorization: Bearer {MASK}"),
        ("postgresql://me:hunter2@db/x", f"postgresql://me:{MASK}@db/x"),
        ("password=correcthorse", f"password={MASK}"),
        ('{"api_key": "0123456789"}', f'{{"api_key": "{MASK}"}}'),
    ],
)
def test_the_words_around_a_secret_stay_readable(text: str, clean: str) -> None:
    assert scrub(text) == clean


@proves("F49")
@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=8, max_size=40), st.text(), st.text())
def test_a_remembered_value_never_survives(secret: str, before: str, after: str) -> None:
    register_secret(secret)
    assert secret not in scrub(f"{before}{secret}{after}").replace(MASK, "\0")


@proves("F49")
@table(
    "key", ["apiKey", "GITHUB_TOKEN", "x-api-key", "Authorization", "client_secret", "db_password", "Cookie"]
)
def test_a_secret_is_recognised_by_its_key(key: str) -> None:
    assert is_secret_name(key)
    assert scrub_json({key: "plain words"}) == {key: MASK}


@proves("F49")
@table("name", ["MAPS_KEY", "AZURE_KEY_2", "mapsKey", "--auth", "GITHUB_PAT", "key"])
def test_more_names_are_secret_in_a_configuration_than_in_what_tools_take_and_give(name: str) -> None:
    assert is_secret_setting(name)
    assert not is_secret_setting(f"{name}_FILE")
    found = {name: "north", "primary_key": "id", "sort_key": "created_at"}
    assert scrub_json(found) is found


@table("name", ["MONKEY", "keyboard", "PATTERN", "AUTHOR", "KEY_PATH", "COMPAT"])
def test_ordinary_names_of_a_configuration_are_not_secret(name: str) -> None:
    assert not is_secret_setting(name)


@table("key", ["path", "tokenizer", "max_tokens_per_call", "query", "keyboard"])
def test_ordinary_keys_are_not_secret(key: str) -> None:
    assert not is_secret_name(key)


@table(
    "text",
    ["the task is done", "sk-learn", "read notes.md at 12:30", "https://example.org/a?b=c", "eyJust kidding"],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert scrub(text) == text


def test_a_very_short_value_is_not_remembered() -> None:
    register_secret("dev")
    assert scrub("dev mode") == "dev mode"


@table(
    "text",
    [
        "api_key=sk-0123456789abcdef0123",
        'token: "sk-0123456789abcdef0123", more',
        "Authorization: Bearer abcdefgh12345678",
        "postgres://me:hunter2@db/x?password=hunter2hunter2",
    ],
)
def test_masking_twice_is_masking_once(text: str) -> None:
    once = scrub(text)
    assert once != text
    assert scrub(once) == once


HINTS = (
    "sk-proj-", "pk_live_", "ghp_", "github_pat_", "glpat-", "xoxb-", "hf_", "npm_", "pypi-", "AKIA", "AIza",
    "eyJ", "fp_", "Bearer ", "basic\t", "://me:", "@db", "password=", "Token: ", "api-key='",
    "pa\u017fsword=", "-----BEGIN PRIVATE KEY-----", "a" * 24, "A1" * 20, ".", " ", "0" * 32, "_", "\n",
)  # fmt: skip


@proves("F49")
@given(st.lists(st.sampled_from(HINTS) | st.text(max_size=3), max_size=8).map("".join))
def test_the_quick_look_misses_nothing_the_patterns_would_find(text: str) -> None:
    known: Any = vars(redaction)  # the patterns themselves, without the quick look before them
    masked = (
        text if known["_known_secrets_pattern"] is None else known["_known_secrets_pattern"].sub(MASK, text)
    )
    thorough = known["_SECRET_AFTER_WORD"].sub(known["_mask_after"], known["_SECRET_SHAPE"].sub(MASK, masked))
    assert scrub(text) == thorough


@proves("F49")
def test_a_key_of_our_own_is_a_secret() -> None:
    assert scrub(f"fp_{'0a' * 16}_{'x-Y' * 14}z") == MASK


TOKEN_CHARACTERS = "abcXYZ019._~+/=-"


@proves("F49")
@given(
    st.text(TOKEN_CHARACTERS, min_size=23, max_size=90),
    st.text(TOKEN_CHARACTERS + " \n", max_size=40),
    st.text(TOKEN_CHARACTERS + " \n", max_size=40),
)
def test_a_registered_token_never_survives(token: str, before: str, after: str) -> None:
    redaction.register_token(token)
    assert token not in scrub(f"{before}{token}{after}").replace(MASK, "\0")


@pytest.mark.slow
@proves("F49", "M1")
def test_tokens_of_many_users_cost_no_time_and_the_oldest_are_forgotten() -> None:
    def measure() -> float:
        text = " ".join(secrets.token_urlsafe(24) for _ in range(40))
        began = time.thread_time()
        for number in range(100):
            scrub(f"{number} {text}")
        return time.thread_time() - began

    before = min(measure() for _ in range(3))
    tokens = [f"eyJhbGciOiJSUzI1NiIsInR5cCI6{secrets.token_urlsafe(32)}" for _ in range(redaction.MAX_TOKENS)]
    for token in tokens:
        redaction.register_token(token)
    assert min(measure() for _ in range(3)) < 10 * before  # a pattern of so many took 2,000 times as long
    assert scrub(f"it has {tokens[0]} or {tokens[-1]}.") == f"it has {MASK} or {MASK}."
    redaction.register_token(secrets.token_urlsafe(32))
    assert tokens[0] in scrub(f"it has {tokens[0]}.")


def test_json_without_secrets_comes_back_as_the_very_same_object() -> None:
    value = {"a": ["x", 1, None, {"b": True}], "password": ""}
    assert scrub_json(value) is value
    assert scrub_json({"a": ("x",)}) == {"a": ["x"]}
