"""Arguments without a model: what a request says for certain is filled in, all the rest is asked."""

from __future__ import annotations

from typing import Any
from zoneinfo import available_timezones

import pytest

from fingerpost.choose.keyless.tables import CITIES, COUNTRIES
from fingerpost.records import EntityKind
from tests.choose.keyless.corpus import cases, fill, score_cases
from tests.kit.catalogs import card, tool
from tests.kit.tables import table
from tests.requirements import proves


def takes(properties: dict[str, Any], *, required: list[str] | None = None, name: str = "look_at") -> Any:
    must = list(properties) if required is None else required
    return card(
        tool(
            name, "Look at things", inputSchema={"type": "object", "properties": properties, "required": must}
        )
    )


# The recall is what was measured; a change that lowers it should be meant.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "recall"), [("cases", 1.0), ("held_out", 0.97), ("hard", 0.95)])
def test_no_wrong_value_in_the_corpus_and_the_recall_holds(name: str, recall: float):
    score = score_cases(name)
    assert score.wrong == []
    assert score.unasked == []
    assert score.recall >= recall


def test_the_corpus_is_large_bilingual_and_knows_requests_that_give_nothing():
    every = [case for name in ("cases", "held_out", "hard") for case in cases(name)]
    assert len(every) >= 350
    assert sum(any("א" <= letter <= "ת" for letter in case.request) for case in every) >= 30
    assert sum(not case.arguments for case in every) >= 90


def test_every_place_lives_by_a_time_zone_there_is():
    assert {*CITIES.values(), *COUNTRIES.values()} <= available_timezones()


def test_a_place_of_two_words_is_read_as_a_whole():
    assert fill("מה השעה בלוס אנג׳לס?", "time/get_current_time").arguments == {
        "timezone": "America/Los_Angeles"
    }
    assert "לוס" not in CITIES


def test_every_argument_has_its_reason():
    got = fill("what time is it in Tokyo?", "time/get_current_time")
    assert got.arguments == {"timezone": "Asia/Tokyo"}
    assert got.reasons == {"timezone": '"Tokyo" is the only time zone for timezone'}
    assert got.is_complete


def test_what_is_missing_comes_with_its_description_and_options():
    got = fill("open an issue", "tickets/create_issue")
    title, priority = got.missing
    assert (title.name, title.description) == ("title", "Title of the issue")
    assert priority.options == ("low", "medium", "high", "critical")


def test_one_value_for_two_required_parameters_is_asked_not_guessed():
    card = takes({"input_path": {"type": "string"}, "output_path": {"type": "string"}})
    got = fill("convert a.txt", card)
    assert got.arguments == {}
    assert [entity.kind for entity in got.unused_entities] == [EntityKind.PATH]


def test_a_required_parameter_goes_before_an_optional_one():
    card = takes({"path": {"type": "string"}, "config_file": {"type": "string"}}, required=["path"])
    assert fill("check a.txt", card).arguments == {"path": "a.txt"}


@table("name", ["password", "api_key", "apiKey", "access_token", "secret", "client_secret", "passphrase"])
def test_what_looks_like_a_secret_is_never_filled_and_never_left_over(name: str):
    card = takes({name: {"type": "string"}})
    got = fill(f'use {name.replace("_", " ")} "hunter2-hunter2"', card)
    assert got.arguments == {}
    assert [one.name for one in got.missing] == [name]
    assert "hunter2" not in str(got)


def test_a_secret_in_the_request_does_not_become_another_argument():
    card = takes({"message": {"type": "string"}})
    assert fill("the password is 'hunter2'", card).arguments == {}


FILE_TOOL = takes(
    {
        "operation": {"enum": ["read_file", "append_file", "rename_file", "copy_file", "delete", "list_dir"]},
        "path": {"type": "string", "description": "File or folder"},
        "new_path": {"type": "string", "description": "rename_file, copy_file: the new name"},
        "content": {"type": "string", "description": "The text to write"},
    },
    required=["operation"],
    name="file_operations",
)


@proves("Q8")
@table(
    ("request_text", "arguments", "missing"),
    [
        ("rename a.txt to b.txt", {"operation": "rename_file", "path": "a.txt", "new_path": "b.txt"}, []),
        (
            "please move a.txt to old/a.txt",
            {"operation": "rename_file", "path": "a.txt", "new_path": "old/a.txt"},
            [],
        ),
        ("copy b.txt to c.txt", {"operation": "copy_file", "path": "b.txt", "new_path": "c.txt"}, []),
        ("delete notes/old.md", {"operation": "delete", "path": "notes/old.md"}, []),
        ('append "more" to a.txt', {"operation": "append_file", "path": "a.txt", "content": "more"}, []),
        ("list the files in the working directory", {"operation": "list_dir"}, []),
        ("delete a file", {"operation": "delete"}, ["path"]),
        ("rename a.txt", {"operation": "rename_file"}, ["path", "new_path"]),
    ],
)
def test_the_operation_that_a_request_orders_is_filled_with_what_it_needs(
    request_text: str, arguments: dict[str, Any], missing: list[str]
):
    got = fill(request_text, FILE_TOOL)
    assert {name: got.arguments.get(name) for name in arguments} == arguments
    assert [one.name for one in got.missing] == missing


@proves("Q8")
def test_a_switch_before_a_noun_of_its_description_is_set():
    raw = {"type": "boolean", "description": "Get the HTML of the page as it is"}
    card = takes({"raw": raw}, required=[])
    assert fill("get the raw html of the page", card).arguments == {"raw": True}
    assert fill("get the raw data", card).arguments == {}


def test_nested_objects_are_asked_for():
    nested = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    got = fill("do it with a.txt", takes({"options": nested}))
    assert got.arguments == {}
    assert [one.name for one in got.missing] == ["options"]


def test_references_and_or_null_are_read_through():
    schema: Any = {
        "type": "object",
        "properties": {
            "path": {"$ref": "#/$defs/Path"},
            "day": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        },
        "required": ["path"],
        "$defs": {"Path": {"type": "string"}},
    }
    got = fill("a.txt of 2026-01-02", card(tool("see", inputSchema=schema)))
    assert got.arguments == {"path": "a.txt", "day": "2026-01-02"}


def test_only_the_part_a_tool_is_for_is_read_when_the_request_asks_for_several_things():
    request = "read a.txt and then fetch https://example.com"
    got = fill(request, "files/read_text_file", need="read a.txt")
    assert got.arguments == {"path": "a.txt"}
    assert got.unused_entities == ()


def test_what_no_argument_took_up_is_left_over():
    got = fill("show 10 lines of app.log", "files/read_text_file")
    assert got.arguments == {"path": "app.log"}
    assert [entity.text for entity in got.unused_entities] == ["10"]


def test_what_is_named_to_be_left_alone_is_counted_and_not_used():
    got = fill("don't read secrets.env", "files/read_text_file")
    assert (got.arguments, got.excluded_count, got.unused_entities) == ({}, 1, ())


def test_the_own_time_zone_stands_in_only_where_the_tool_allows_it():
    assert fill("what time is it?", "time/get_current_time", zone="Asia/Jerusalem").arguments == {
        "timezone": "Asia/Jerusalem"
    }
    plain = takes({"timezone": {"type": "string", "description": "IANA name"}})
    assert fill("what time is it?", plain, zone="Asia/Jerusalem").arguments == {}


def test_an_own_time_zone_that_is_none_is_not_used():
    assert fill("what time is it?", "time/get_current_time", zone="Mars/Olympus").arguments == {}


def test_bounds_of_the_schema_are_kept():
    card = takes({"count": {"type": "integer", "minimum": 1, "maximum": 5}})
    assert fill("count 4", card).arguments == {"count": 4}
    assert fill("count 40", card).arguments == {}
    assert fill("count 2.5", card).arguments == {}


def test_an_id_of_another_form_is_not_used():
    card = takes({"order_id": {"type": "string"}}, name="get_order")
    assert fill("show order ORD-17", card).arguments == {"order_id": "ORD-17"}
    card = takes({"order_id": {"type": "string", "format": "uuid"}}, name="get_order")
    assert fill("show order ORD-17", card).arguments == {}


def test_a_number_is_not_found_inside_a_word() -> None:
    card = takes({"count": {"type": "integer"}})
    assert fill("for room4b use count 4", card).arguments == {"count": 4}
