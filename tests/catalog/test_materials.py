"""Resources and prompts of several servers, and templates matched against addresses."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.catalog.materials import alias, collect
from fingerpost.catalog.templates import Template
from fingerpost.records import JsonObject, Materials
from tests.requirements import proves

HAVING: JsonObject = {"resources": {}, "prompts": {}}


def having(
    server: str, *uris: str, templates: tuple[str, ...] = (), prompts: tuple[str, ...] = ()
) -> Materials:
    return Materials(
        server=server,
        capabilities=HAVING,
        resources=tuple({"uri": uri, "name": uri} for uri in uris),
        templates=tuple({"uriTemplate": text, "name": text} for text in templates),
        prompts=tuple({"name": name} for name in prompts),
    )


@proves("G8")
@pytest.mark.parametrize(
    ("template", "fitting", "strange"),
    [
        ("book://{id}", ("book://7", "book://", "book://a%20b"), ("book://7/8", "map://7", "book:/7")),
        ("file:///{+path}", ("file:///a/b/c?d#e",), ("file:/a",)),
        ("x://list{?page,size}", ("x://list", "x://list?page=2&size=3"), ("x://lists/2#a",)),
        ("x://{a}/to/{b}", ("x://1/to/2",), ("x://1/2", "x://1/to/2/3")),
        ("x://dir{/path*}", ("x://dir", "x://dir/a/b"), ("x://di",)),
        ("x://a{#part}", ("x://a", "x://a#here"), ("y://a",)),
        ("x://plain", ("x://plain",), ("x://plain2",)),
    ],
)
def test_an_address_is_recognised_by_its_template(
    template: str, fitting: tuple[str, ...], strange: tuple[str, ...]
) -> None:
    read = Template.read(template)
    assert [uri for uri in fitting if not read.fits(uri)] == []
    assert [uri for uri in strange if read.fits(uri)] == []


@proves("G8")
@given(
    st.lists(st.sampled_from(["{a}", "{+b}", "{?c,d}", "-", "/", "a", "}", "{"]), max_size=12),
    st.text("-/a", max_size=300),
)
def test_no_template_makes_matching_slow_or_fail(pieces: list[str], text: str) -> None:
    began = time.process_time()
    Template.read("x://" + "".join(pieces)).fits("x://" + text)
    assert time.process_time() - began < 0.5


@proves("G8")
def test_contrived_templates_and_addresses_take_little_time() -> None:
    slow = Template.read("x://" + "{+a}-" * 30 + "!")
    began = time.process_time()
    assert not slow.fits("x://" + "-" * 4000)
    assert time.process_time() - began < 2.0


@proves("G8")
def test_the_first_server_keeps_an_address_and_the_other_is_reachable_too() -> None:
    both = collect([(having("one", "book://a"), True), (having("tw/o", "book://a", "book://b"), True)])
    assert list(both.resources) == ["book://a", alias("tw/o", "book://a"), "book://b"]
    assert both.resource("book://a") == ("one", "book://a")
    assert both.resource("fingerpost://tw%2Fo/book://a") == ("tw/o", "book://a")
    assert both.resource("fingerpost://nobody/book://a") is None
    assert both.shown_as("tw/o", "book://a") == "fingerpost://tw%2Fo/book://a"
    assert both.shown_as("tw/o", "book://b") == "book://b"


@proves("G8")
def test_an_address_nobody_listed_goes_to_the_only_server_that_can_have_it() -> None:
    one = having("one", "book://a", templates=("x://{id}", "x://special/{id}"))
    two = having("two", "map://a", templates=("x://special/{+all}",))
    assert collect([(one, True)]).resource("any://thing") == ("one", "any://thing")
    both = collect([(one, True), (two, True)])
    assert both.resource("any://thing") is None
    assert both.resource("map://unlisted") == ("two", "map://unlisted")
    assert both.resource("x://7") == ("one", "x://7")
    assert both.resource("x://special/7") == ("one", "x://special/7")  # the first of equals
    assert both.resource("x://special/7/8") == ("two", "x://special/7/8")
    assert both.resource("x://" + "y" * 10_000) is None


@proves("G8")
def test_capabilities_are_what_some_server_can_do() -> None:
    silent = Materials(server="silent", capabilities={"tools": {}})
    loud = Materials(server="loud", capabilities={"logging": {}, "resources": {"subscribe": True}})
    assert collect([(silent, True)]).capabilities == {}
    assert collect([(silent, True), (loud, True)]).capabilities == {
        "resources": {"listChanged": True, "subscribe": True},
        "logging": {},
    }


@proves("G8")
def test_prompts_keep_their_names_only_where_no_other_has_them() -> None:
    one, two = having("one", prompts=("sum", "two__sum")), having("two", prompts=("sum",))
    assert list(collect([(one, False), (two, True)]).prompts) == ["sum", "one__two__sum", "two__sum"]
    names = list(collect([(one, False), (two, False)]).prompts)
    assert names[:2] == ["sum", "two__sum"]
    assert names[2].startswith("two__sum-0")


@proves("G8")
def test_a_prompt_is_also_found_by_its_own_name_where_only_one_server_has_it() -> None:
    one, two = having("one", prompts=("sum", "tell")), having("two", prompts=("sum",))
    found = collect([(one, True), (two, True)])
    assert found.prompt("tell") == ("one", "tell")
    assert found.prompt("two__sum") == ("two", "sum")
    assert found.prompt("sum") is None
