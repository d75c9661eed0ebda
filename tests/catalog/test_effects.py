from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.records import Effect, Json, Source
from fingerpost.settings.model import ToolOverride
from tests.catalog.labelled import LABELLED
from tests.kit.catalogs import card, tool
from tests.kit.tables import table
from tests.requirements import proves

_DANGER = [Effect.READ, Effect.WRITE, Effect.DESTROY]


def effect_of(name: str, description: str = "", **parts: Json) -> Effect:
    return card(tool(name, description, **parts)).effect.value


@proves("H16")
def test_no_labelled_tool_that_acts_is_taken_for_reading_and_nine_in_ten_are_exact() -> None:
    judged = [(label, effect_of(label.name, label.description)) for label in LABELLED]
    taken_for_reading = [
        label.name for label, effect in judged if effect is Effect.READ and label.effect is not Effect.READ
    ]
    exact = sum(effect is label.effect for label, effect in judged)
    assert len(LABELLED) >= 120
    assert taken_for_reading == []
    assert exact / len(LABELLED) >= 0.9


@proves("H16")
@table(
    ("name", "description"),
    [
        ("get_or_create_user", ""),
        ("findAndReplace", ""),
        ("list_and_close_stale_issues", ""),
        ("search_and_book_flight", ""),
        ("compare_and_swap", ""),
        ("check_out_book", ""),
        ("list_cleanup", ""),
        ("list_clear", ""),
        ("peek_pop", ""),
        ("check_payment_and_capture", ""),
        ("optimize_query", ""),
        ("summary_email", "Email a summary to the team"),
        ("getdel", "Get the value of a key and delete the key"),
        ("fetch_mail", "Deletes the mails from the server after reading them"),
        ("preview_deployment", "Deploys a preview"),
        ("get_file", "Permanently erases the file"),
        ("graphql_query", "Run a GraphQL query or mutation"),
        ("mysql_query", ""),
        ("frobnicate", ""),
        ("do_it", "A tool"),
    ],
)
def test_a_name_that_hides_an_act_behind_reading_is_not_taken_for_reading(
    name: str, description: str
) -> None:
    assert effect_of(name, description) is not Effect.READ


@proves("H16")
def test_a_read_only_claim_is_believed_where_no_word_contradicts_it() -> None:
    found = card(tool("open_nodes", "", annotations={"readOnlyHint": True})).effect
    assert (found.value, found.source) == (Effect.READ, Source.ANNOTATION)


@proves("H16")
def test_a_read_only_claim_is_not_believed_against_a_destructive_name() -> None:
    found = card(tool("delete_everything", "", annotations={"readOnlyHint": True})).effect
    assert (found.value, found.source) == (Effect.DESTROY, Source.INFERRED)
    assert "'delete'" in found.reason
    assert "not believed" in found.reason


@proves("H16")
def test_a_claim_of_danger_is_always_believed() -> None:
    found = card(tool("get_weather", "", annotations={"destructiveHint": True, "readOnlyHint": True})).effect
    assert (found.value, found.source) == (Effect.DESTROY, Source.ANNOTATION)
    assert effect_of("list_things", annotations={"readOnlyHint": False}) is Effect.WRITE


@proves("H16")
@table("junk", [None, [], "yes", {"readOnlyHint": "true"}, {"readOnlyHint": 1}])
def test_annotations_that_are_not_hints_say_nothing(junk: Json) -> None:
    found = card(tool("frobnicate", "", annotations=junk)).effect
    assert (found.value, found.source) == (Effect.WRITE, Source.DEFAULT)


@proves("H16")
def test_what_a_person_wrote_wins_over_every_other_witness() -> None:
    written = ToolOverride(match="shop/delete_*", effect=Effect.READ)
    found = card(tool("delete_cache", annotations={"destructiveHint": True}), overrides=[written]).effect
    assert (found.value, found.source) == (Effect.READ, Source.WRITTEN)
    assert "shop/delete_*" in found.reason


@proves("H16")
def test_a_tool_is_as_dangerous_as_the_worst_action_it_offers() -> None:
    def choosing(*actions: str) -> dict[str, Json]:
        return {"type": "object", "properties": {"action": {"enum": list(actions)}}}

    assert effect_of("get_record", inputSchema=choosing("read", "list")) is Effect.READ
    assert effect_of("get_record", inputSchema=choosing("read", "update")) is Effect.WRITE
    assert effect_of("get_record", inputSchema=choosing("read", "delete")) is Effect.DESTROY
    assert effect_of("records", inputSchema=choosing("read", "frobnicate")) is Effect.WRITE


_ENUM: Json = {"type": "string", "enum": ["list", "delete"]}
_DEFS: dict[str, Json] = {"$defs": {"Act": _ENUM, "a/b": {"$ref": "#/$defs/Act"}}}


def build_choice_schema(schema: Json, name: str = "action") -> dict[str, Json]:
    return {"type": "object", "properties": {name: schema}, **_DEFS}


@proves("H16")
@table(
    "schema",
    [
        build_choice_schema({"anyOf": [_ENUM, {"type": "null"}], "default": None}),
        build_choice_schema({"$ref": "#/$defs/Act"}),
        build_choice_schema({"allOf": [{"$ref": "#/$defs/a~1b"}], "default": "list"}),
        build_choice_schema({"oneOf": [{"const": "list"}, {"const": "delete_all"}]}),
        build_choice_schema({"enum": ["list", "drop"]}, name="cmd"),
        build_choice_schema({"enum": ["get", "delete"]}, name="type"),
        build_choice_schema({"enum": ["show", "wipe everything"]}, name="what"),
        build_choice_schema(build_choice_schema(_ENUM), name="request"),
        build_choice_schema({"type": "array", "items": _ENUM}, name="actions"),
        build_choice_schema(
            {"type": "array", "items": build_choice_schema({"$ref": "#/$defs/Act"})}, name="steps"
        ),
        {"oneOf": [build_choice_schema({"const": "list"}), build_choice_schema({"const": "delete"})]},
        build_choice_schema({"enum": [*(f"list_{number}" for number in range(500)), "delete"]}),
    ],
)
def test_a_choice_counts_however_the_schema_writes_it(schema: Json) -> None:
    assert effect_of("view_items", "View items", inputSchema=schema) is Effect.DESTROY


@proves("H16")
@table(
    "schema",
    [
        build_choice_schema({"anyOf": [{"enum": ["list", "show"]}, {"type": "null"}]}),
        build_choice_schema({"$ref": "#/$defs/Missing"}),
        build_choice_schema({"$ref": "https://example.com/elsewhere"}),
        build_choice_schema({"$ref": "#/properties/action"}),
        build_choice_schema({"enum": ["bash", "python"]}, name="language"),
        build_choice_schema({"enum": ["create_time", "update_time", "delete_time"]}, name="sort"),
        build_choice_schema({"enum": ["post", "link", "comment"]}, name="type"),
        build_choice_schema({"enum": ["create", "update", "delete"]}, name="event_type"),
        build_choice_schema({"type": "string", "description": "delete"}),
    ],
)
def test_choices_that_do_nothing_leave_a_reading_tool_alone(schema: Json) -> None:
    assert effect_of("view_items", "View items", inputSchema=schema) is Effect.READ


@proves("H16")
def test_a_schema_too_large_to_look_through_is_not_taken_for_reading() -> None:
    hidden: Json = {"properties": {**{f"p{number}": {} for number in range(5000)}, "action": _ENUM}}
    assert effect_of("view_items", "View items", inputSchema=hidden) is not Effect.READ


_PARTS = st.recursive(
    st.sampled_from([None, "delete", 1, {"$ref": "#"}, {"$ref": "#/properties/a"}, {"$ref": "#/x/9"}]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["properties", "anyOf", "allOf", "items", "enum", "const", "$ref", "a", "action"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@pytest.mark.slow
@proves("H16")
@given(_PARTS)
def test_no_schema_keeps_an_effect_from_being_judged(schema: Json) -> None:
    assert effect_of("view_items", "View items", inputSchema=schema) in Effect


@proves("H16")
@table("hint", [True, False])
@table(
    "description",
    [
        "This tool deletes all files of the user",
        "Will delete everything in the account.",
        "Finds expired sessions, deletes them",
        "Find expired sessions, delete them",
        "Gets rid of every record in the table",
        "Lists files. It will also remove them.",
        "Lists files. Then deletes them.",
        "Lists files; afterwards it wipes the disk",
        "Lists files (deletes them afterwards)",
        "Lists files\n\nWARNING: deletes everything",
        "A tool that deletes files",
        "A helper which wipes the disk",
        "Tool for deleting files",
        "This endpoint allows you to delete a user",
        "Manages a list by allowing the user to delete, add or mark items",
        "Can be used to erase disks",
        "Fetches mails, deleting them from the server",
        "Reads a message. The message will be deleted after reading.",
        "Reads and automatically removes the oldest",
        "Lists items and may delete stale ones",
    ],
)
def test_what_a_description_says_the_tool_destroys_is_heard(description: str, *, hint: bool) -> None:
    claim: dict[str, Json] = {"annotations": {"readOnlyHint": True}} if hint else {}
    for name in ("list_cleaner", "summary", "open_things", "thing"):
        assert effect_of(name, description, **claim) is Effect.DESTROY


@proves("H16")
@pytest.mark.parametrize(
    "description",
    [
        "Looks up the user. Also sends an email to them.",
        "Shows all. This sends a message to the owner.",
        "Retrieves releases. It can be used to create, change or fetch them.",
    ],
)
def test_what_a_description_says_the_tool_changes_is_heard(description: str) -> None:
    assert effect_of("list_things", description, annotations={"readOnlyHint": True}) is Effect.WRITE


@proves("H16")
@table(
    "description",
    [
        "Lists deleted files",
        "Returns the removed items",
        "Shows who deleted a file",
        "Shows what happens when a user deletes a file",
        "Search for issues that were deleted",
        "Lists files. It does not delete anything",
        "Lists files without modifying them",
        "Get the list of tools that can delete files",
        "Lists rules that delete mails",
        "Returns files which will be deleted",
        "Get a preview of what would be deleted",
        "Returns a token that can be used to delete the image",
        "Get the id of a file so that you can delete it later",
        "Checks whether the user can delete a file",
        "Lists items. To delete an item, use delete_item.",
        "Lists items. Use delete_item to remove one.",
        "Lists items. You can delete items with another tool.",
        "Lists items. Once an item is deleted it is not returned.",
        "Get events (create, update, delete)",
        "Get file info: size, update time, delete flag",
        "List news, updates and events",
        "This API enables users to search",
        "Get a diff. This tool creates a short summary of it.",
        "List versions. Undelete is another tool.",
    ],
)
def test_what_others_do_did_or_may_do_leaves_a_reading_tool_alone(description: str) -> None:
    assert effect_of("list_things", description) is Effect.READ


@proves("H16")
def test_sql_as_it_comes_is_dangerous_unless_it_only_reads() -> None:
    assert effect_of("query", "Run SQL on the database") is Effect.DESTROY
    assert effect_of("query", "Run a read-only SQL query") is Effect.READ
    assert effect_of("helper", inputSchema={"properties": {"code": {"type": "string"}}}) is Effect.DESTROY


@proves("H16")
def test_a_denied_danger_is_no_danger() -> None:
    assert effect_of("get_page", "Reads a page. It never overwrites anything.") is Effect.READ
    assert effect_of("page", "Returns a page and never deletes or overwrites it") is Effect.READ


@pytest.mark.slow
@proves("H16")
@given(st.text(min_size=1, max_size=60), st.text(max_size=200), st.booleans())
def test_a_destructive_verb_can_never_be_talked_down(before: str, description: str, claim: bool) -> None:
    definition = tool(f"{before}_delete_things", description, annotations={"readOnlyHint": claim})
    assert card(definition).effect.value is Effect.DESTROY


@pytest.mark.slow
@proves("H16")
@given(
    name=st.text(min_size=1, max_size=40).filter(lambda text: bool(text.strip())),
    description=st.text(max_size=80),
    annotations=st.dictionaries(st.sampled_from(["readOnlyHint", "destructiveHint"]), st.booleans()),
)
def test_annotations_never_make_a_tool_less_dangerous_than_its_own_verbs(
    name: str, description: str, annotations: dict[str, Json]
) -> None:
    bare = card(tool(name, description)).effect
    claimed = card(tool(name, description, annotations=annotations)).effect
    assert claimed.reason
    if bare.source is Source.INFERRED and "may mean anything" not in bare.reason:
        assert _DANGER.index(claimed.value) >= _DANGER.index(bare.value)
