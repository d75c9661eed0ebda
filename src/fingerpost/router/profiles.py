"""Profiles as they are now: who may use which, and what each allows; and policies given in code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from fingerpost.call.paths import PatternFit, match_exactly
from fingerpost.errors import CallError, ConfigError
from fingerpost.frozen import frozen
from fingerpost.records import Effect, Effort, Scope
from fingerpost.router.options import NarrowOptions
from fingerpost.settings import ProfileFiles, ProfileRule, ProfileSettings, ProgramRule


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


POLL_INTERVAL_S: Final = 2.0
NO_PROFILE_SETTINGS: Final = Scope(servers=("",))  # no server is called so
_PROFILE_NAME_RULE: Final = 20

W = TypeVar("W", bound=NarrowOptions)
OnProfilesChanged = Callable[[tuple[str, ...]], None]  # the names that are new, gone or different


class ProfileRefused(CallError):
    """The profile is for others."""


class Profiles(Mapping[str, ProfileSettings]):
    """By name, always as they are now. `version` grows with every change."""

    def __init__(self, profiles: Mapping[str, ProfileSettings], plans: Mapping[str, str]) -> None:
        self._now = dict(profiles)
        self._plans = dict(plans)
        self._gone: set[str] = set()
        self._preferred: str | None = None
        self.version = 1
        self.efforts: Mapping[str, Effort] = {}  # what callers prefer
        self.problems: tuple[str, ...] = ()  # what is wrong with files as they are now
        self.bounds: Mapping[str, Scope] = self._build_bounds()

    def __getitem__(self, name: str) -> ProfileSettings:
        return self._now[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now)

    def __len__(self) -> int:
        return len(self._now)

    # -- who and which ------------------------------------------------------------------------------

    @property
    def depends_on_caller(self) -> bool:
        """Whether it matters who asks."""
        return any(profile.users or profile.plans for profile in self._now.values())

    def may_use(self, name: str, caller: str | None) -> bool:
        """Whether it is there for this caller. What bounds their key is another matter."""
        profile = self._now.get(name)
        return profile is not None and self._get_closeness(profile, caller) is not None

    def resolve_profile(
        self,
        requested: str | None = None,
        *,
        caller: str | None = None,
        api_version: str | None = None,
        among: tuple[str, ...] = (),
    ) -> str | None:
        """The profile that is meant: by name, by API version, or because it is this caller's.

        `among` are the only ones their key opens. Raises `ConfigError` where there is none of that name,
        `ProfileRefused` where it is not theirs.
        """
        if requested is not None:
            self._check_allowed(requested, caller)
            return requested
        theirs = {
            name: (closeness, name)
            for name, profile in self._now.items()
            if (not among or name in among)
            and (closeness := self._get_closeness(profile, caller)) is not None
        }
        if api_version is not None:
            versioned = [name for name in theirs if api_version in self._now[name].api_versions]
            if versioned:
                return min(versioned, key=lambda name: theirs[name])
        if self._preferred in theirs:
            return self._preferred
        return min((name for name in theirs if self._now[name].default), key=theirs.__getitem__, default=None)

    def prefer(self, name: str | None) -> None:
        """Whoever names none gets this one, as far as they may use it."""
        if name is not None:
            self.get_profile(name)
        self._preferred = name

    def apply_profile(self, options: W) -> W:
        """What is wanted, under the profile that is meant: its name, and no more tools than it allows."""
        name = self.resolve_profile(
            options.get("profile"), caller=options.get("caller"), api_version=options.get("api_version")
        )
        effort = self._choose_effort(options, name)
        if name is None and effort is None:
            return options
        options = options.copy()
        options["effort"] = effort
        if name is None:
            return options
        options["profile"] = name
        if (most := self._now[name].max_tools) is not None:
            options["max_tools"] = min(options.get("max_tools") or most, most)
        return options

    def _choose_effort(self, options: NarrowOptions, profile: str | None) -> Effort | None:
        """What the request says, else what its caller prefers, else its profile."""
        if (asked := options.get("effort")) is not None:
            if asked not in tuple(Effort):
                message = f"there is no effort {str(asked)[:60]!r}"
                raise ConfigError(message, hint=f"There are: {', '.join(Effort)}.")
            return Effort(asked)
        theirs = self.efforts.get(options.get("caller") or "")
        return theirs or (None if profile is None else self._now[profile].effort)

    def _check_allowed(self, name: str, caller: str | None) -> None:
        self.get_profile(name)
        if not self.may_use(name, caller):
            message = f"the profile {name} is not for {caller or 'somebody without a name'}"
            raise ProfileRefused(message, hint="Whoever runs this names them in its users, or in [plans].")

    def get_profile(self, name: str) -> ProfileSettings:
        """The profile of this name, whoever may use it. Raises `ConfigError`."""
        profile = self._now.get(name)
        if profile is None:
            there = ", ".join(sorted(self._now)[:_PROFILE_NAME_RULE]) or "none"
            message = f"there is no profile {name[:80]!r}"
            raise ConfigError(message, hint=f"There are: {there}. `fingerpost profiles` lists them.")
        return profile

    def _get_closeness(self, profile: ProfileSettings, caller: str | None) -> int | None:
        """How much it is theirs: 0 by name, 1 by plan, 2 as everybody's; None where it is not."""
        if not profile.users and not profile.plans:
            return 2
        if caller is None:
            return None
        if _matches_any(profile.users, caller):
            return 0
        return 1 if self.get_plan(caller) in profile.plans else None

    def get_plan(self, caller: str) -> str | None:
        """The plan this caller is on."""
        return next((plan for who, plan in self._plans.items() if _matches_any((who,), caller)), None)

    # -- bounds -------------------------------------------------------------------------------------

    def _build_bounds(self) -> dict[str, Scope]:
        """What may be used under each, those that are gone included."""
        now = {name: build_scope(name, profile) for name, profile in self._now.items()}
        return {
            **dict.fromkeys(self._gone - now.keys(), NO_PROFILE_SETTINGS),
            **{name: scope for name, scope in now.items() if scope is not None},
        }

    def get_agent_scope(self, name: str | None) -> Scope | None:
        """What an agent may use under a profile in place of the profile's bounds; None: as the profile."""
        profile = None if name is None else self._now.get(name)
        if profile is None or not profile.agent_tools:
            return None
        return Scope(tools=profile.agent_tools, effects=profile.effects, profile=name, delegated=True)

    # -- changing -----------------------------------------------------------------------------------

    def replace_profiles(
        self, profiles: Mapping[str, ProfileSettings], problems: tuple[str, ...] = ()
    ) -> tuple[str, ...] | None:
        """Take these from now on. The names that changed; None where nothing did, problems included."""
        before, told = self._now, self.problems
        changed = tuple(
            sorted(name for name in {*before, *profiles} if before.get(name) != profiles.get(name))
        )
        self.problems = problems
        if not changed:
            return None if told == problems else ()
        self._gone |= before.keys()
        self._now = dict(profiles)
        self.bounds = self._build_bounds()
        self.version += 1
        return changed


def build_scope(name: str, profile: ProfileSettings) -> Scope | None:
    """What a profile bounds; None where it bounds nothing."""
    scope = Scope(servers=profile.servers, tools=profile.tools, effects=profile.effects, profile=name)
    return scope if scope.bounded else None


def _matches_any(patterns: tuple[str, ...], name: str) -> bool:
    return any(match_exactly(pattern, name) is PatternFit.YES for pattern in patterns)


async def poll_profiles(
    files: ProfileFiles, profiles: Profiles, on_changed: OnProfilesChanged, *, interval: float
) -> None:
    """Look at the files now and then; a broken one leaves its profile as it was, and is told of."""
    mark = None
    while True:
        with suppress(OSError):
            seen = await anyio.to_thread.run_sync(files.get_fingerprint)
            if seen != mark:
                reading = await anyio.to_thread.run_sync(files.read)
                kept = {name: profiles[name] for name in reading.broken if name in profiles}
                problems = tuple(f"{problem} (fix: {problem.fix})" for problem in reading.problems)
                changed = profiles.replace_profiles({**kept, **reading.profiles, **files.written}, problems)
                mark = seen
                if changed is not None:
                    on_changed(changed)
        await anyio.sleep(interval)
