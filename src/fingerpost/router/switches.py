"""What can be changed while requests are being answered, from any thread.

Settings do not change; these few values start as the settings say and may be replaced.
A request reads them when it begins, as one value, so it never sees half of a change.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import Final

from pydantic import ValidationError

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.records import Mode
from fingerpost.settings import ChooseSettings, Settings, SmartRoutingSettings

MODES: Final = ("auto", "staged", "single", "simple", "react", "keyless")
MAX_TURNS: Final = 100  # as `choose.max_turns` has it
REACT_ROUNDS: Final = 8  # one call in each


@frozen
class RuntimeOptions:
    """How everything is switched at one moment."""

    smart_routing: SmartRoutingSettings
    mode: str  # of answering: one of `MODES`
    max_turns: int | None  # of agents; None: see `get_max_rounds`
    max_reinjections: int

    def get_max_rounds(self, mode: str, requested: int | None = None) -> int:
        """How many rounds of tools one request may take in this mode; `wanted` is said with the request."""
        if mode not in (Mode.SIMPLE, Mode.REACT):
            return self.max_reinjections
        usual = REACT_ROUNDS if mode == Mode.REACT else self.max_reinjections
        return requested or self.max_turns or usual


class RuntimeSwitches:
    """The values, and the way to change them. What is out of bounds is refused and changes nothing."""

    def __init__(self, settings: Settings) -> None:
        self._first = RuntimeOptions(
            smart_routing=settings.smart_routing,
            mode=settings.choose.mode,
            max_turns=settings.choose.max_turns,
            max_reinjections=settings.tool_routing.max_reinjections,
        )
        self._now = self._first
        self._lock = Lock()

    @property
    def now(self) -> RuntimeOptions:
        """Everything, as it is at this moment."""
        return self._now

    def set_smart_routing(self, mode: bool | str) -> None:
        """`True` or "on", `False` or "off", or "auto": on above both thresholds."""
        wanted = ("on" if mode else "off") if isinstance(mode, bool) else mode
        self._set_routing("The modes are auto, on and off.", mode=wanted)

    def set_thresholds(self, *, max_tools: int | None = None, max_servers: int | None = None) -> None:
        """Above how many tools and servers "auto" chooses servers; None leaves one as it is."""
        wanted = {"max_tools": max_tools, "max_servers": max_servers}
        given = {name: value for name, value in wanted.items() if value is not None}
        self._set_routing("A threshold is a whole number, 0 or more.", **given)

    def set_mode(self, mode: str) -> None:
        """How requests are answered that do not say it themselves."""
        self._set_choosing(f"The modes are {', '.join(MODES)}.", mode=mode)

    def set_max_turns(self, turns: int) -> None:
        """How many rounds of tools an agent may have."""
        self._set_choosing(f"An agent has 1 to {MAX_TURNS} turns.", max_turns=turns)

    def restore(self) -> None:
        """Back to what the settings say."""
        with self._lock:
            self._now = self._first

    def _set_routing(self, hint: str, **values: object) -> None:
        with self._lock:
            before = self._now.smart_routing.model_dump()
            try:
                changed = SmartRoutingSettings.model_validate({**before, **values}, strict=True)
            except ValidationError as wrong:
                raise _build_refusal(values, hint) from wrong
            self._now = replace(self._now, smart_routing=changed)

    def _set_choosing(self, hint: str, **values: object) -> None:
        with self._lock:
            try:
                checked = ChooseSettings.model_validate(values, strict=True)
            except ValidationError as wrong:
                raise _build_refusal(values, hint) from wrong
            changed = {name: getattr(checked, name) for name in values}
            self._now = replace(self._now, **changed)


def _build_refusal(values: dict[str, object], hint: str) -> ConfigError:
    told = " and ".join(f"{name} = {value!r:.60}" for name, value in values.items())
    return ConfigError(f"{told} is not possible", hint=hint)
