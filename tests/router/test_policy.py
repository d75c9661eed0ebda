"""Rules given by a program: what they say, how they are named, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fingerpost import ConfigError, Policy, Router, Settings
from fingerpost.policy.rules import build_rule_names
from fingerpost.router.profiles import build_profile_rules
from fingerpost.settings import RuleSettings
from fingerpost.settings.load import load
from tests.kit.stores import place_empty_store
from tests.requirements import proves


def test_rules_of_the_program_and_of_the_file_are_counted_apart() -> None:
    rules = (*Policy(deny={"a/b", "a/c"}).rules, RuleSettings(verdict="ask"), RuleSettings(verdict="deny"))
    assert build_rule_names(rules) == (
        "rule 1 of the program's policy",
        "rule 2 of the program's policy",
        "rule 1 of the settings",
        "rule 2 of the settings",
    )


@proves("V10")
def test_a_rule_is_named_by_the_file_or_the_profile_it_stands_in(tmp_path: Path) -> None:
    rule = '[[policy]]\nverdict = "deny"\n'
    night = '[profiles.night]\n[[profiles.night.policy]]\nverdict = "deny"\n'
    (tmp_path / "own.toml").write_text(rule * 2 + night)
    settings = load(config=tmp_path / "own.toml", environ={}, cwd=tmp_path).settings
    assert build_rule_names((*build_profile_rules(settings.profiles), *settings.policy)) == (
        "rule 1 of the profile night",
        "rule 1 in own.toml",
        "rule 2 in own.toml",
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"deny": "crm/export"}, "collection of names"), ({"ask_for": {"destory"}}, "no such effect: destory")],
)
def test_a_policy_that_would_silently_do_nothing_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Policy(**wrong)


async def test_a_router_that_is_not_open_says_so(tmp_path: Path) -> None:
    router = Router(settings=Settings.model_validate({"store": {"url": place_empty_store(tmp_path, "s.db")}}))
    with pytest.raises(ConfigError, match="not open") as refused:
        await router.route("hello")
    assert refused.value.hint is not None
    assert "async with" in refused.value.hint
