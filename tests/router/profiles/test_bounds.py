"""A profile bounds everything done under it, and is available to the callers it is meant for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.records import CallContext, ErrorKind, ToolCall
from fingerpost.router.profiles import NO_ACCESS_SCOPE, ProfileRefused, Profiles
from fingerpost.settings import ProfileSettings
from fingerpost.testing import ScriptedModel, calls
from tests.kit.profiles import sees, small
from tests.requirements import proves

DESK = {"servers": ["tickets"], "max_tools": 1}


@proves("U14", "B8")
async def test_a_name_is_enough_for_the_bounds_to_hold(tmp_path: Path):
    async with small(tmp_path, profiles={"desk": DESK}) as (router, weather, _):
        assert sees(router, "desk") == ["tickets/find_ticket"]
        found = await router.narrow("the weather forecast", profile="desk", asked_for_tools=True)
        assert {hidden.tool for hidden in found.shortlist.hidden} == {"weather/get_forecast"}
        called = await router.call("weather/get_forecast", {"what": "Oslo"}, profile="desk")
        assert called.error is ErrorKind.DENIED
        context = CallContext(call_id="cal_1", profile="desk")  # no scope was given
        past = await router.calls.call(ToolCall(name="weather/get_forecast", arguments={}), context)
        assert past.error is ErrorKind.DENIED
        assert weather.calls == []
        assert (await router.call("tickets/find_ticket", {"what": "7"}, profile="desk")).success


@proves("U14")
async def test_a_model_cannot_call_what_the_profile_leaves_out(tmp_path: Path):
    model = ScriptedModel([calls(("weather__get_forecast", {"what": "Oslo"})), "I cannot."])
    async with small(tmp_path, model, profiles={"desk": DESK}) as (router, weather, _):
        route = await router.route("find the ticket about the forecast", profile="desk", mode="simple")
    assert weather.calls == []
    assert route.packet.context.profile == "desk"


@proves("U14")
async def test_no_more_tools_than_the_profile_allows(tmp_path: Path):
    async with small(tmp_path, profiles={"few": {"max_tools": 1}}) as (router, _, _):
        text = "find the support ticket about the weather forecast"
        every = await router.narrow(text, asked_for_tools=True)
        few = await router.narrow(text, asked_for_tools=True, profile="few", max_tools=9)
    assert (len(every.shortlist.offered), len(few.shortlist.offered)) == (2, 1)


def create_profiles(plans: dict[str, str] | None = None, **profiles: dict[str, object]) -> Profiles:
    parsed = {name: ProfileSettings.model_validate(fields) for name, fields in profiles.items()}
    return Profiles(parsed, plans or {})


@proves("B10")
def test_who_may_use_a_profile_goes_by_name_and_plan():
    known = create_profiles(
        {"dana": "pro", "token:*@acme": "free"}, pro={"plans": ["pro"]}, dev={"users": ["d*"]}, free={}
    )
    assert [name for name in known if known.may_use(name, "dana")] == ["pro", "dev", "free"]
    assert [name for name in known if known.may_use(name, "token:7@acme")] == ["free"]
    assert [name for name in known if known.may_use(name, None)] == ["free"]
    assert known.resolve_profile("pro", caller="dana") == "pro"
    with pytest.raises(ProfileRefused, match="not for eve"):
        known.resolve_profile("pro", caller="eve")


@proves("B7", "B10")
def test_which_profile_is_meant():
    known = create_profiles(
        {"dana": "pro"},
        kb={"default": True},
        rich={"default": True, "plans": ["pro"]},
        mine={"default": True, "users": ["ann"]},
        v1={"api_versions": ["v1"]},
        v03={"api_versions": ["v0.3"], "plans": ["pro"]},
    )
    assert known.resolve_profile(caller="bob") == "kb"
    assert known.resolve_profile(caller="dana") == "rich"
    assert known.resolve_profile(caller="ann") == "mine"
    assert known.resolve_profile(caller="bob", api_version="v1") == "v1"
    assert known.resolve_profile(caller="bob", api_version="v0.3") == "kb"  # it is for others
    assert known.resolve_profile(caller="dana", api_version="v0.3") == "v03"
    assert known.resolve_profile(caller="bob", api_version="v99") == "kb"
    assert known.resolve_profile("v1", caller="bob", api_version="v0.3") == "v1"
    assert known.resolve_profile(caller="bob", api_version="v1", among=("kb",)) == "kb"
    assert known.resolve_profile(caller="bob", among=("nothing",)) is None
    known.set_default("v1")
    assert known.resolve_profile(caller="bob") == "v1"


names = st.sampled_from(["a", "b", "c"])
some = st.dictionaries(names, st.builds(ProfileSettings, servers=st.sampled_from([(), ("s",), ("t",)])))


@proves("U14")
@given(st.lists(some, max_size=6))
def test_whatever_changes_no_profile_ever_opens_more_than_it_says(changes: list[dict[str, ProfileSettings]]):
    known = Profiles({}, {})
    ever: set[str] = set()
    for change in changes:
        before = known.version
        changed = known.replace_profiles(change)
        assert (known.version > before) is bool(changed)
        ever |= change.keys()
        assert dict(known) == change
        for name in ever:
            servers = change[name].servers if name in change else None
            bound = known.bounds.get(name)
            assert (
                bound == NO_ACCESS_SCOPE if servers is None else (bound.servers if bound else ()) == servers
            )
