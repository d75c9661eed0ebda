"""Rules in a few words, for programs that have no settings file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.records import Effect
from fingerpost.settings import ProfileRule, ProfileSettings, ProgramRule


@frozen
class Policy:
    """What is denied, asked about and allowed, in this order; all else stays as it is by default.

    Tools are named by key (`server/tool`, `*` allowed), effects by `read`, `write`, `destroy`.
    """

    deny: Collection[str] = ()
    ask: Collection[str] = ()
    allow: Collection[str] = ()
    deny_effects: Collection[str] = ()
    ask_for: Collection[str] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            given: object = getattr(self, field.name)
            if isinstance(given, str):  # its letters would be the names, and nothing would be denied
                message = f"{field.name} of a Policy is a collection of names, not the text {given!r}"
                raise ConfigError(message, hint=f"Write {field.name}={{{given!r}}}.")
        wrong = {*self.deny_effects, *self.ask_for} - set(Effect)
        if wrong:
            message = f"no such effect: {', '.join(sorted(wrong))}"
            raise ConfigError(message, hint=f"The effects are {', '.join(Effect)}.")

    @property
    def rules(self) -> tuple[ProgramRule, ...]:
        """The same as the rules of a settings file."""
        return (
            *(ProgramRule(verdict="deny", tool=tool) for tool in sorted(self.deny)),
            *(ProgramRule(verdict="deny", effect=Effect(effect)) for effect in sorted(self.deny_effects)),
            *(ProgramRule(verdict="ask", tool=tool) for tool in sorted(self.ask)),
            *(ProgramRule(verdict="allow", tool=tool) for tool in sorted(self.allow)),
            *(ProgramRule(verdict="ask", effect=Effect(effect)) for effect in sorted(self.ask_for)),
        )


def build_profile_rules(profiles: Mapping[str, ProfileSettings]) -> tuple[ProfileRule, ...]:
    """The rules of all profiles, each bound to its own."""
    return tuple(
        ProfileRule.model_validate({**rule.model_dump(), "profile": name})
        for name, profile in sorted(profiles.items())
        for rule in profile.policy
    )
