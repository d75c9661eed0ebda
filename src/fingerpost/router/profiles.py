"""The current profiles: who may use them and what they allow. Also policies defined in code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Final, TypeVar, cast

import anyio
import anyio.to_thread

from fingerpost.errors import CallError, ConfigError
from fingerpost.frozen import frozen
from fingerpost.policy.paths import PatternFit, match_exactly
from fingerpost.records import Effect, Effort, Scope
from fingerpost.router.options import NarrowOptions
from fingerpost.settings import ProfileFiles, ProfileRule, ProfileSettings, ProgramRule


@frozen
class Policy:
    """Tools and effects to deny, ask about or allow, in this order. Everything else keeps its default.

    Tools are named by key (`server/tool`, `*` allowed), effects by `read`, `write`, `destroy`.

    Fields:
        deny: tools that are never called
        ask: tools that need approval
        allow: tools that run without approval
        deny_effects: effects that are never allowed
        ask_for: effects that need approval
    """

    deny: Collection[str] = ()
    ask: Collection[str] = ()
    allow: Collection[str] = ()
    deny_effects: Collection[str] = ()
    ask_for: Collection[str] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            given: object = getattr(self, field.name)
            if isinstance(given, str):  # a text would be read as single letters and deny nothing
                message = f"{field.name} of a Policy is a collection of names, not the text {given!r}"
                raise ConfigError(message, hint=f"Write {field.name}={{{given!r}}}.")
            if not isinstance(given, Collection) or not all(
                isinstance(name, str) for name in cast("Collection[object]", given)
            ):
                message = f"{field.name} of a Policy is a collection of names, not {given!r:.60}"
                raise ConfigError(message, hint=f"Write {field.name}={{'server/tool'}}.")
        wrong = {*self.deny_effects, *self.ask_for} - set(Effect)
        if wrong:
            message = f"no such effect: {', '.join(sorted(wrong))}"
            raise ConfigError(message, hint=f"The effects are {', '.join(Effect)}.")

    @property
    def rules(self) -> tuple[ProgramRule, ...]:
        """The policy as rules of a settings file."""
        return (
            *(ProgramRule(verdict="deny", tool=tool) for tool in sorted(self.deny)),
            *(ProgramRule(verdict="deny", effect=Effect(effect)) for effect in sorted(self.deny_effects)),
            *(ProgramRule(verdict="ask", tool=tool) for tool in sorted(self.ask)),
            *(ProgramRule(verdict="allow", tool=tool) for tool in sorted(self.allow)),
            *(ProgramRule(verdict="ask", effect=Effect(effect)) for effect in sorted(self.ask_for)),
        )


def build_profile_rules(profiles: Mapping[str, ProfileSettings]) -> tuple[ProfileRule, ...]:
    """Return the rules of all profiles, each limited to its profile."""
    return tuple(
        ProfileRule.model_validate({**rule.model_dump(), "profile": name})
        for name, profile in sorted(profiles.items())
        for rule in profile.policy
    )


POLL_INTERVAL_S: Final = 2.0
NO_ACCESS_SCOPE: Final = Scope(servers=("",))  # matches no server
_MAX_LISTED_PROFILES: Final = 20

W = TypeVar("W", bound=NarrowOptions)
OnProfilesChanged = Callable[[tuple[str, ...]], None]  # the names of new, deleted or changed profiles


class ProfileRefused(CallError):
    """The caller may not use this profile."""


class Profiles(Mapping[str, ProfileSettings]):
    """The current profiles by name. `version` increases with every change."""

    def __init__(self, profiles: Mapping[str, ProfileSettings], plans: Mapping[str, str]) -> None:
        self._current = dict(profiles)
        self._plans = dict(plans)
        self._former_names: set[str] = set()
        self._preferred: str | None = None
        self.version = 1
        self.efforts: Mapping[str, Effort] = {}  # preferences of callers
        self.problems: tuple[str, ...] = ()  # problems in the current files
        self.bounds: Mapping[str, Scope] = self._build_bounds()

    def set_plans(self, plans: Mapping[str, str]) -> None:
        """Replace the plans of callers."""
        self._plans = dict(plans)
        self.version += 1

    def __getitem__(self, name: str) -> ProfileSettings:
        return self._current[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._current)

    def __len__(self) -> int:
        return len(self._current)

    @property
    def depends_on_caller(self) -> bool:
        """Whether the available profiles depend on the caller."""
        return any(profile.users or profile.plans for profile in self._current.values())

    def may_use(self, name: str, caller: str | None) -> bool:
        """Return whether the caller may use the profile, without regard to the scopes of its key."""
        profile = self._current.get(name)
        return profile is not None and self._get_closeness(profile, caller) is not None

    def resolve_profile(
        self,
        requested: str | None = None,
        *,
        caller: str | None = None,
        api_version: str | None = None,
        among: tuple[str, ...] = (),
    ) -> str | None:
        """Return the profile of a request: by name, by API version, or the caller's own.

        `among` are the only profiles that the caller's key permits. Raises `ConfigError` if there is no such
        profile and `ProfileRefused` if the caller may not use it.
        """
        if requested is not None:
            self.get_profile(requested)
            if not self.may_use(requested, caller):
                message = f"the profile {requested} is not for {caller or 'an anonymous caller'}"
                raise ProfileRefused(
                    message, hint="The operator can add the caller to the profile's users, or to [plans]."
                )
            return requested
        allowed = {
            name: (closeness, name)
            for name, profile in self._current.items()
            if (not among or name in among)
            and (closeness := self._get_closeness(profile, caller)) is not None
        }
        if api_version is not None:
            versioned = [name for name in allowed if api_version in self._current[name].api_versions]
            if versioned:
                return min(versioned, key=lambda name: allowed[name])
        if self._preferred in allowed:
            return self._preferred
        return min(
            (name for name in allowed if self._current[name].default), key=allowed.__getitem__, default=None
        )

    def set_default(self, name: str | None) -> None:
        """Set the default profile for callers that name none and may use it."""
        if name is not None:
            self.get_profile(name)
        self._preferred = name

    def apply_profile(self, options: W) -> W:
        """Return the options with the resolved profile and its limit on the number of tools."""
        name = self.resolve_profile(options.profile, caller=options.caller, api_version=options.api_version)
        effort = self._choose_effort(options, name)
        if name is None and effort is None:
            return options
        if name is None:
            return replace(options, effort=effort)
        max_tools, most = options.max_tools, self._current[name].max_tools
        if most is not None:
            max_tools = most if max_tools is None else min(max_tools, most)
        return replace(options, effort=effort, profile=name, max_tools=max_tools)

    def _choose_effort(self, options: NarrowOptions, profile: str | None) -> Effort | None:
        """Return the effort of the request, else the caller's preference, else the profile's."""
        if (asked := options.effort) is not None:
            if asked not in tuple(Effort):
                message = f"there is no effort {str(asked)[:60]!r}"
                raise ConfigError(message, hint=f"There are: {', '.join(Effort)}.")
            return Effort(asked)
        preferred = self.efforts.get(options.caller or "")
        return preferred or (None if profile is None else self._current[profile].effort)

    def get_profile(self, name: str) -> ProfileSettings:
        """Return the profile of this name, for any caller. Raises `ConfigError` if there is none."""
        profile = self._current.get(name)
        if profile is None:
            there = ", ".join(sorted(self._current)[:_MAX_LISTED_PROFILES]) or "none"
            message = f"there is no profile {name[:80]!r}"
            raise ConfigError(message, hint=f"There are: {there}. `fingerpost profiles` lists them.")
        return profile

    def _get_closeness(self, profile: ProfileSettings, caller: str | None) -> int | None:
        """Return how a profile matches the caller: 0 by name, 1 by plan, 2 for all; None: not at all."""
        if not profile.users and not profile.plans:
            return 2
        if caller is None:
            return None
        if _matches_any(profile.users, caller):
            return 0
        return 1 if self.get_plan(caller) in profile.plans else None

    def get_plan(self, caller: str) -> str | None:
        """Return the caller's plan."""
        return next((plan for who, plan in self._plans.items() if _matches_any((who,), caller)), None)

    def _build_bounds(self) -> dict[str, Scope]:
        """Return the scope of each profile, including deleted profiles."""
        now = {name: build_scope(name, profile) for name, profile in self._current.items()}
        return {
            **dict.fromkeys(self._former_names - now.keys(), NO_ACCESS_SCOPE),
            **{name: scope for name, scope in now.items() if scope is not None},
        }

    def get_agent_scope(self, name: str | None) -> Scope | None:
        """Return the scope that agents have under a profile in place of the profile's scope, or None."""
        profile = None if name is None else self._current.get(name)
        if profile is None or not profile.agent_tools:
            return None
        return Scope(tools=profile.agent_tools, effects=profile.effects, profile=name, delegated=True)

    def replace_profiles(
        self, profiles: Mapping[str, ProfileSettings], problems: tuple[str, ...] = ()
    ) -> tuple[str, ...] | None:
        """Replace all profiles. Return the names that changed, or None if nothing did, problems included."""
        before, old_problems = self._current, self.problems
        changed = tuple(
            sorted(name for name in {*before, *profiles} if before.get(name) != profiles.get(name))
        )
        self.problems = problems
        if not changed:
            return None if old_problems == problems else ()
        self._former_names |= before.keys()
        self._current = dict(profiles)
        self.bounds = self._build_bounds()
        self.version += 1
        return changed


def build_scope(name: str, profile: ProfileSettings) -> Scope | None:
    """Return the scope of a profile, or None if it has no bounds."""
    scope = Scope(servers=profile.servers, tools=profile.tools, effects=profile.effects, profile=name)
    return scope if scope.bounded else None


def _matches_any(patterns: tuple[str, ...], name: str) -> bool:
    return any(match_exactly(pattern, name) is PatternFit.YES for pattern in patterns)


async def poll_profiles(
    files: ProfileFiles, profiles: Profiles, on_changed: OnProfilesChanged, *, interval: float
) -> None:
    """Poll the files for changes. A broken file leaves its profile unchanged and is reported."""
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
