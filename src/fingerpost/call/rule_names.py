"""What a rule is called where a reason is told: by its place, and by where it was written."""

from __future__ import annotations

from collections.abc import Sequence

from fingerpost.settings import OwnRule, ProfileRule, ProgramRule, RuleSettings


def build_rule_names(rules: Sequence[RuleSettings], source: str) -> tuple[str, ...]:
    """One name for each rule, in order. Rules of the program and of the file are counted apart."""
    names: list[str] = []
    given = written = 0
    for rule in rules:
        if isinstance(rule, ProfileRule):
            names.append(f"a rule of the profile {rule.profile}")
        elif isinstance(rule, OwnRule):
            names.append(f"default of {rule.server}")
        elif isinstance(rule, ProgramRule):
            given += 1
            names.append(f"rule {given} of the program's policy")
        else:
            written += 1
            names.append(f"rule {written} in {source}")
    return tuple(names)
