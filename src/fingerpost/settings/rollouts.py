"""A changed setting for a share of conversations: which arm a conversation is in, and what holds there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import ValidationError

from fingerpost.settings.model import RolloutSettings, Section, Settings

CHANGED_ARM: Final = "changed"
USUAL_ARM: Final = "usual"
# What is read anew for each request; everything else is read once, when Fingerpost starts.
ROLLOUT_SETTINGS: Final = (
    *(
        f"flags.{name}"
        for name in (
            "need_gate", "intent_signals", "split_needs", "producers", "learned_use", "review", "widen",
            "chains", "syntax_guard", "summarise", "result_summaries",
        )
    ),
    "tool_routing.selection_temperature",
    "tool_routing.review_temperature",
    "tool_routing.confidence_threshold",
    "choose.decline_below",
    "choose.max_seconds",
    "choose.max_tokens",
    "choose.answer_tokens",
    "choose.answer_temperature",
    "choose.persona",
    "narrow.max_tools",
    "narrow.candidates",
)  # fmt: skip


def assign_arms(rollouts: tuple[RolloutSettings, ...], unit: str) -> dict[str, str]:
    """The arm of each rollout that a conversation (or a request without one) is in: always the same."""
    return {
        one.name: CHANGED_ARM if _compute_position(one.name, unit) < one.share else USUAL_ARM
        for one in rollouts
    }


def apply_arms(settings: Settings, arms: Mapping[str, str]) -> Settings:
    """The settings as they hold in these arms."""
    for one in settings.rollout:
        if arms.get(one.name) == CHANGED_ARM:
            section, _, name = one.setting.partition(".")
            changed = getattr(settings, section).model_copy(update={name: one.value})
            settings = settings.model_copy(update={section: changed})
    return settings


def find_rollout_problems(rollouts: tuple[RolloutSettings, ...]) -> Iterator[tuple[int, str, str, str]]:
    """What cannot be rolled out: which, the field that is wrong, what is wrong with it, and the fix."""
    seen: set[str] = set()
    for index, one in enumerate(rollouts):
        if one.name in seen:
            yield index, "name", f"there are two rollouts named {one.name!r}", "rename one of them"
        seen.add(one.name)
        if one.setting not in ROLLOUT_SETTINGS:
            message = f"{one.setting!r} cannot be rolled out"
            yield index, "setting", message, f"choose from {', '.join(ROLLOUT_SETTINGS)}"
        elif (reason := _find_misfit(one)) is not None:
            yield index, "value", f"does not fit {one.setting}: {reason}", "see docs/settings.md"


def _find_misfit(one: RolloutSettings) -> str | None:
    section, _, name = one.setting.partition(".")
    given: Section = getattr(Settings(), section)
    try:
        type(given).model_validate({name: one.value}, strict=True)
    except ValidationError as wrong:
        return str(wrong.errors()[0]["msg"])
    return None


def _compute_position(name: str, unit: str) -> float:
    """Where a conversation lies between 0 and 1 for this rollout, by its name alone."""
    said = hashlib.blake2b(f"{name}\n{unit}".encode("utf-8", "replace"), digest_size=8)
    return int.from_bytes(said.digest(), "big") / 2**64
