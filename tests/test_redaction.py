"""Secrets are masked by what they are and by what they are called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.redaction import MASK, names_secret, remember, scrub, scrub_json
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
@pytest.mark.parametrize("secret", CANARIES)
def test_a_known_shape_is_masked_wherever_it_stands(secret: str) -> None:
    text = f"before {secret} after"
    assert scrub(text) == f"before {MASK} after"
    assert secret not in str(scrub_json({"a": [text, {"b": secret}]}))


@proves("F49")
@pytest.mark.parametrize(
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
    remember(secret)
    assert secret not in scrub(f"{before}{secret}{after}").replace(MASK, "\0")


@proves("F49")
@pytest.mark.parametrize(
    "key", ["apiKey", "GITHUB_TOKEN", "x-api-key", "Authorization", "client_secret", "db_password", "Cookie"]
)
def test_a_secret_is_recognised_by_its_key(key: str) -> None:
    assert names_secret(key)
    assert scrub_json({key: "plain words"}) == {key: MASK}


@pytest.mark.parametrize("key", ["path", "tokenizer", "max_tokens_per_call", "query", "keyboard"])
def test_ordinary_keys_are_not_secret(key: str) -> None:
    assert not names_secret(key)


@pytest.mark.parametrize(
    "text",
    ["the task is done", "sk-learn", "read notes.md at 12:30", "https://example.org/a?b=c", "eyJust kidding"],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert scrub(text) == text


def test_a_very_short_value_is_not_remembered() -> None:
    remember("dev")
    assert scrub("dev mode") == "dev mode"


@pytest.mark.parametrize(
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
