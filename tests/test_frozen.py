"""A frozen record is the dataclass it would be otherwise: same values, equality, hash and words."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.events import CallReceived, Event
from fingerpost.frozen import compile_inits, frozen
from fingerpost.records import CallContext, Outcome
from fingerpost.records.codec import from_plain, to_plain

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FrozenModel:
    first: int
    second: str = "two"
    third: tuple[int, ...] = field(default=(), kw_only=True)
    aside: int = field(default=0, compare=False)
    hidden: int = field(default=0, repr=False)
    unhashed: tuple[int, ...] = field(default=(), hash=False)


@frozen(kw_only=False)
class Record:
    first: int
    second: str = "two"
    third: tuple[int, ...] = field(default=(), kw_only=True)
    aside: int = field(default=0, compare=False)
    hidden: int = field(default=0, repr=False)
    unhashed: tuple[int, ...] = field(default=(), hash=False)


@frozen(kw_only=False)
class Quick:
    first: int
    second: str = "two"
    third: list[int] = field(default_factory=list[int], kw_only=True)
    checked: int = field(default=0, init=False, compare=False)
    noted: int = field(default=7, init=False)
    heard: list[str] = field(default_factory=list[str], init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checked", self.first + 1)


@frozen(kw_only=False)
class Below(Quick):
    fourth: str = "four"


class Bare(Quick):
    """A class below without fields of its own."""


@frozen
class Named:
    """Also with names that what makes records uses itself."""

    first: int
    shown: int = 1
    made: int = 2
    other: int = 3
    within: Any = None


@frozen(kw_only=False)
class HeldValue(Generic[T]):
    value: T


@frozen(eq=False)
class Itself:
    first: int


@frozen(kw_only=False)
class OwnWays:
    first: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnWays)

    def __hash__(self) -> int:
        return 5

    def __repr__(self) -> str:
        return "own"


_FIELDS = st.fixed_dictionaries(
    {"first": st.integers(0, 2)},
    optional={
        "second": st.sampled_from("ab"),
        "third": st.tuples(st.integers(0, 1)),
        "aside": st.integers(0, 1),
        "hidden": st.integers(0, 1),
        "unhashed": st.tuples(st.integers(0, 1)),
    },
)


@given(_FIELDS, _FIELDS)
def test_it_is_equal_hashed_and_shown_as_a_dataclass_is(one: dict[str, Any], other: dict[str, Any]) -> None:
    models, records = (FrozenModel(**one), FrozenModel(**other)), (Record(**one), Record(**other))
    assert (records[0] == records[1]) == (models[0] == models[1])
    assert [hash(record) for record in records] == [hash(model) for model in models]
    assert [repr(record) for record in records] == [
        repr(model).replace("FrozenModel", "Record", 1) for model in models
    ]
    assert records[0] != models[0]


def test_it_is_made_and_compared_as_any_other() -> None:
    assert (Quick(1), Quick(1, "x", third=[3])) == (Quick(first=1), Quick(1, second="x", third=[3]))
    assert Quick(1) != Quick(2)
    assert Quick(1).third is not Quick(1).third
    assert Quick(1).checked == 2
    assert repr(Quick(1)) == "Quick(first=1, second='two', third=[], checked=2, noted=7, heard=[])"
    assert replace(Quick(1, "x"), first=5) == Quick(5, "x")


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


def test_fields_go_by_name_unless_said_otherwise() -> None:
    assert Named(first=1) == Named(first=1, within=None)
    with pytest.raises(TypeError):
        Named(1)  # pyright: ignore[reportCallIssue] - what must not work


def test_a_generic_one_and_one_that_is_only_equal_to_itself() -> None:
    assert HeldValue(1) == HeldValue[int](1) != HeldValue(2)
    one = Itself(first=1)
    assert one == one != Itself(first=1)
    assert len({one, Itself(first=1)}) == 2


def test_what_a_class_says_itself_stays() -> None:
    assert OwnWays(1) == OwnWays(2)
    assert (hash(OwnWays(1)), repr(OwnWays(1))) == (5, "own")


def test_one_that_holds_itself_can_be_shown() -> None:
    within: list[Any] = []
    holder = Named(first=1, within=within)
    within.append(holder)
    assert repr(holder) == "Named(first=1, shown=1, made=2, other=3, within=[...])"


def test_events_are_registered_once_and_masked() -> None:
    assert Event.kinds["call_received"] is CallReceived
    event = CallReceived(call_id="c", name="n", arguments={"password": "open sesame"})
    assert type(event) is CallReceived
    assert "open sesame" not in repr(event)  # masked while it was made
    assert {item.name for item in fields(event)} >= {"event_id", "at", "call_id"}


def test_nothing_is_compiled_before_it_is_needed() -> None:
    @frozen
    class Late:
        first: int
        second: list[int] = field(default_factory=list[int])
        third: int = field(default=3, init=False)

        def __post_init__(self) -> None:
            assert self.first

    compiled = {name: getattr(Late, name).__code__.co_filename for name in ("__init__", "__eq__", "__hash__")}
    assert "<string>" not in compiled.values()
    early = Late(first=1), Late(first=1, second=[])
    assert Late.__init__.__code__.co_filename != "<string>"
    third = Late(first=1)
    assert early[0] == early[1] == third
    assert third.third == early[0].third == 3
    assert early[0].second is not third.second
    assert Late.__init__.__code__.co_filename == Late.__eq__.__code__.co_filename == "<string>"
    assert Late.__hash__.__code__.co_filename != "<string>"
    assert Outcome.__doc__


def test_wrong_arguments_of_the_first_instance_are_errors() -> None:
    @frozen
    class Strict:
        first: int
        second: int = field(default=2, init=False)

    for wrong in ({}, {"first": 1, "second": 3}, {"first": 1, "other": 3}):
        with pytest.raises(TypeError, match=r"Strict\.__init__"):
            Strict(**wrong)


@frozen
class _Prepared:
    number: int
    names: tuple[str, ...] = ()


@frozen
class _WithOwnInit:
    number: int

    def __init__(self) -> None:
        object.__setattr__(self, "number", 7)


def test_methods_of_a_module_are_compiled_before_they_are_needed() -> None:
    own = _WithOwnInit.__init__
    assert _Prepared.__init__.__name__ != "made"
    assert _Prepared in compile_inits(__name__)
    compiled = _Prepared.__init__
    assert compiled.__name__ == "made"
    assert (_Prepared(number=1), _WithOwnInit().number) == (_Prepared(number=1, names=()), 7)
    assert _WithOwnInit not in compile_inits(__name__)
    assert (_Prepared.__init__, _WithOwnInit.__init__) == (compiled, own)
