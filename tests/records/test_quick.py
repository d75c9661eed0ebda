"""A quick record is the record it would be without: same signature, same values, as frozen."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from fingerpost.events import CallReceived, Event
from fingerpost.records import CallContext, Outcome
from fingerpost.records.codec import from_plain, to_plain
from fingerpost.records.quick import quick


@dataclass(frozen=True, slots=True)
class Slow:
    first: int
    second: str = "two"
    third: list[int] = field(default_factory=list[int], kw_only=True)


@quick
@dataclass(frozen=True, slots=True)
class Quick:
    first: int
    second: str = "two"
    third: list[int] = field(default_factory=list[int], kw_only=True)
    checked: int = field(default=0, init=False, compare=False)
    noted: int = field(default=7, init=False)
    heard: list[str] = field(default_factory=list[str], init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checked", self.first + 1)


@dataclass(frozen=True, slots=True)
class Below(Quick):
    fourth: str = "four"


class Bare(Quick):
    """A class below without fields of its own."""


def test_it_is_made_and_compared_as_any_other() -> None:
    assert (Quick(1), Quick(1, "x", third=[3])) == (Quick(first=1), Quick(1, second="x", third=[3]))
    assert Quick(1) != Quick(2)
    assert Quick(1).third is not Quick(1).third
    assert Quick(1).checked == 2
    assert repr(Quick(1)) == "Quick(first=1, second='two', third=[], checked=2, noted=7, heard=[])"
    assert replace(Quick(1, "x"), first=5) == Quick(5, "x")
    assert list(inspect.signature(Quick).parameters) == list(inspect.signature(Slow).parameters)


def test_it_is_frozen_and_of_its_own_class() -> None:
    made = Quick(1)
    assert type(made) is Quick
    with pytest.raises(FrozenInstanceError):
        made.first = 2  # pyright: ignore[reportAttributeAccessIssue] - what must not work
    with pytest.raises(FrozenInstanceError):
        del made.second  # pyright: ignore[reportAttributeAccessIssue] - nor this


@pytest.mark.parametrize("wrong", [(), (1, "x", [3]), (1, 2, 3, 4)])
def test_wrong_arguments_are_refused(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        Quick(*wrong)


def test_classes_below_it_work() -> None:
    assert Below(1, fourth="x").fourth == "x"
    assert type(Below(1)) is Below
    assert type(Bare(3)) is Bare
    bare = Bare(3)
    assert (bare.first, bare.second, bare.third, bare.checked, bare.noted) == (3, "two", [], 4, 7)


def test_it_is_copied_kept_and_read_back() -> None:
    made = Quick(1, third=[1])
    assert copy.deepcopy(made) == made == pickle.loads(pickle.dumps(made))
    context = CallContext(call_id="c")
    assert from_plain(CallContext, to_plain(context)) == context


def test_events_and_the_records_of_a_call_are_quick_and_registered_once() -> None:
    for record in (CallReceived, Outcome):
        assert record.__init__.__code__.co_names[:1] == ("__class__",)
    assert Event.kinds["call_received"] is CallReceived
    event = CallReceived(call_id="c", name="n", arguments={"password": "open sesame"})
    assert "open sesame" not in repr(event)  # masked while it was made
    assert {item.name for item in fields(event)} >= {"event_id", "at", "call_id"}
