"""Resources and prompts of several servers, and templates matched against addresses."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fingerpost.catalog.resources import UriTemplate, build_alias, collect_resources
from fingerpost.records import JsonObject, ServerResources
from tests.kit.tables import table
from tests.requirements import proves

HAVING: JsonObject = {"resources": {}, "prompts": {}}


def build_resources(
    server: str, *uris: str, templates: tuple[str, ...] = (), prompts: tuple[str, ...] = ()
) -> ServerResources:
    return ServerResources(
        server=server,
        capabilities=HAVING,
        resources=tuple({"uri": uri, "name": uri} for uri in uris),
        templates=tuple({"uriTemplate": text, "name": text} for text in templates),
        prompts=tuple({"name": name} for name in prompts),
    )


GOOD = build_resources("good", templates=("secret://good/{id}",))


@proves("G8")
@table(
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
    read = UriTemplate.parse(template)
    assert read is not None
    assert [uri for uri in fitting if not read.matches(uri)] == []
    assert [uri for uri in strange if read.matches(uri)] == []


def _plainly(template: str, uri: str) -> bool:
    """The same question, put to regular expressions: right, and slow on contrived templates."""
    first, *rest = re.split(r"\{([+?]?)[^{}]*\}", template)
    holding = {"": "[^/?#]*", "+": ".*", "?": "[^#]*"}
    parts = [
        holding[operator] + re.escape(text) for operator, text in zip(rest[::2], rest[1::2], strict=True)
    ]
    return re.fullmatch(re.escape(first) + "".join(parts), uri, re.DOTALL) is not None


@proves("G8")
@given(
    st.lists(st.sampled_from(["{a}", "{+b}", "{?c,d}", "-", "/", "a", "}", "{"]), max_size=8),
    st.text("-/a?#", max_size=12),
)
@example(["{a}", "{+b}"], "/a")
@example(["{+b}", "{a}", "{a}", "/"], "a/#/")
@example(["a", "{a}", "a"], "a")
def test_a_template_fits_what_can_be_made_from_it_and_nothing_else(pieces: list[str], text: str) -> None:
    template, uri = "x:" + "".join(pieces), "x:" + text
    read = UriTemplate.parse(template)
    assert read is not None
    assert read.matches(uri) == _plainly(template, uri)


@proves("G8")
def test_contrived_templates_and_addresses_come_to_an_end() -> None:
    slow = UriTemplate.parse("x://" + "{+a}-" * 20 + "!")
    assert slow is not None
    assert not slow.matches("x://" + "-" * 4000 + "!x")
    assert slow.matches("x://" + "-" * 4000 + "!")


@proves("G8")
def test_an_oversized_template_is_listed_and_matches_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert UriTemplate.parse("x://" + "{a}/" * 21) is None
    assert UriTemplate.parse("x://" + "y" * 2000) is None
    huge = ["{+a}" * 800 + "q" * 850 + str(number) for number in range(20)]
    with caplog.at_level("DEBUG"):
        both = collect_resources([(build_resources("bad", templates=tuple(huge)), True), (GOOD, True)])
    assert "bad: the URI template is too large and is not matched: {+a}" in caplog.text
    assert both.find_resource("secret://good/a-long-name") == ("good", "secret://good/a-long-name")
    assert set(huge) < set(both.templates)


@proves("G8")
def test_a_server_with_templates_that_take_long_is_passed_over_and_the_others_are_not() -> None:
    slow = tuple("{+a}" + "q" * 900 + f"{{+b}}{number}{{+c}}" for number in range(200))
    both = collect_resources(
        [(build_resources("bad", templates=(*slow, "secret://good/q{+d}")), True), (GOOD, True)]
    )
    short, long = "secret://good/qq", "secret://good/" + "q" * 4000
    assert both.find_resource("secret://good/7") == ("good", "secret://good/7")
    # Of two that fit, the more telling one has it; after 200 long ones its server had its share.
    assert both.find_resource(long) == ("good", long)
    alone = collect_resources(
        [(build_resources("bad", templates=("secret://good/q{+d}",)), True), (GOOD, True)]
    )
    assert alone.find_resource(short) == ("bad", short)


@proves("G8")
def test_the_first_server_keeps_an_address_and_the_other_is_reachable_too() -> None:
    both = collect_resources(
        [(build_resources("one", "book://a"), True), (build_resources("tw/o", "book://a", "book://b"), True)]
    )
    assert list(both.resources) == ["book://a", build_alias("tw/o", "book://a"), "book://b"]
    assert both.find_resource("book://a") == ("one", "book://a")
    assert both.find_resource("fingerpost://tw%2Fo/book://a") == ("tw/o", "book://a")
    assert both.find_resource("fingerpost://nobody/book://a") is None
    assert both.get_listed_uri("tw/o", "book://a") == "fingerpost://tw%2Fo/book://a"
    assert both.get_listed_uri("tw/o", "book://b") == "book://b"


@proves("G8")
def test_an_unlisted_address_goes_to_the_only_server_that_can_have_it() -> None:
    one = build_resources("one", "book://a", templates=("x://{id}", "x://special/{id}"))
    two = build_resources("two", "map://a", templates=("x://special/{+all}",))
    assert collect_resources([(one, True)]).find_resource("any://thing") == ("one", "any://thing")
    both = collect_resources([(one, True), (two, True)])
    assert both.find_resource("any://thing") is None
    assert both.find_resource("map://unlisted") == ("two", "map://unlisted")
    assert both.find_resource("x://7") == ("one", "x://7")
    assert both.find_resource("x://special/7") == ("one", "x://special/7")  # the first of equals
    assert both.find_resource("x://special/7/8") == ("two", "x://special/7/8")
    assert both.find_resource("x://" + "y" * 10_000) is None


@proves("G8")
def test_capabilities_are_what_some_server_can_do() -> None:
    silent = ServerResources(server="silent", capabilities={"tools": {}})
    loud = ServerResources(server="loud", capabilities={"logging": {}, "resources": {"subscribe": True}})
    assert collect_resources([(silent, True)]).capabilities == {}
    assert collect_resources([(silent, True), (loud, True)]).capabilities == {
        "resources": {"listChanged": True, "subscribe": True},
        "logging": {},
    }


@proves("G8")
def test_prompts_keep_their_names_only_where_no_other_has_them() -> None:
    one, two = build_resources("one", prompts=("sum", "two__sum")), build_resources("two", prompts=("sum",))
    assert list(collect_resources([(one, False), (two, True)]).prompts) == [
        "sum",
        "one__two__sum",
        "two__sum",
    ]
    names = list(collect_resources([(one, False), (two, False)]).prompts)
    assert names[:2] == ["sum", "two__sum"]
    assert names[2].startswith("two__sum-0")


@proves("G8")
def test_a_prompt_is_also_found_by_its_own_name_where_only_one_server_has_it() -> None:
    one, two = build_resources("one", prompts=("sum", "tell")), build_resources("two", prompts=("sum",))
    found = collect_resources([(one, True), (two, True)])
    assert found.find_prompt("tell") == ("one", "tell")
    assert found.find_prompt("two__sum") == ("two", "sum")
    assert found.find_prompt("sum") is None


ADDRESSES = ("x://a", "x://b", "x://c/1", "y://a", "z://a", "fingerpost://two/x://a", "fingerpost://no/x://a")
TEMPLATES = ("x://{id}", "x://c/{id}", "y://{+all}")
offers = st.tuples(
    st.lists(st.sampled_from(ADDRESSES), max_size=4),
    st.lists(st.sampled_from(TEMPLATES), max_size=2, unique=True),
)


@proves("G8")
@given(st.tuples(offers, offers, offers), st.sampled_from(ADDRESSES))
def test_what_a_server_has_is_called_otherwise_only_where_it_would_lead_elsewhere(
    each: tuple[tuple[list[str], list[str]], ...], uri: str
) -> None:
    names = ("one", "two", "three")
    all_of_them = collect_resources(
        (build_resources(name, *uris, templates=tuple(templates)), True)
        for name, (uris, templates) in zip(names, each, strict=True)
    )
    for server in names:
        called, leads_to = all_of_them.get_listed_uri(server, uri), all_of_them.find_resource(uri)
        if not uri.startswith("fingerpost://"):
            assert (called == uri) == (leads_to in (None, (server, uri)))
        if leads_to is not None:
            assert all_of_them.find_resource(called) in ((server, uri), (server, "x://a"))


@proves("G8")
def test_an_address_is_told_apart_by_what_servers_offer() -> None:
    one = build_resources("one", "x://a", "https://one.example/a", templates=("file:///{+path}",))
    two = build_resources("two", "x://a", "fingerpost://inner/x://a")
    silent = ServerResources(server="silent", capabilities={"tools": {}})
    both = collect_resources([(one, True), (two, True), (silent, True)])
    # Two of one server are one.
    assert (
        collect_resources([(build_resources("one", "x://a", "x://a"), True)]).get_listed_uri("one", "x://a")
        == "x://a"
    )
    # A server without resources has none under another server's address either.
    for uri in ("x://a", "file:///a.txt"):
        assert both.get_listed_uri("silent", uri) == f"fingerpost://silent/{uri}"
        assert both.find_resource(f"fingerpost://silent/{uri}") is None
    # By its scheme alone, it is one's: two's is another, and a page of the web is the same one.
    assert both.get_listed_uri("two", "x://unlisted") == "x://unlisted"
    assert both.get_listed_uri("two", "file:///a.txt") == "fingerpost://two/file:///a.txt"
    assert both.get_listed_uri("two", "https://two.example/") == "https://two.example/"
    assert both.get_listed_uri("two", "https://one.example/a") == "fingerpost://two/https://one.example/a"
    # Links of servers without resources are not taken for those of the only server with resources.
    alone = collect_resources([(build_resources("one", "x://a"), True), (silent, True)])
    assert alone.get_listed_uri("silent", "note://7") == "note://7"
    # Only a gateway uses our addresses, and a gateway behind this one does.
    assert (
        both.get_listed_uri("two", "fingerpost://inner/x://a") == "fingerpost://two/fingerpost://inner/x://a"
    )
    assert (
        both.get_listed_uri("two", "fingerpost://inner/x://b") == "fingerpost://two/fingerpost://inner/x://b"
    )
    assert both.get_listed_uri("two", "fingerpost://one/x://a") == "fingerpost://two/fingerpost://one/x://a"
    assert both.get_listed_uri("two", "fingerpost://two/x://a") == "fingerpost://two/x://a"
