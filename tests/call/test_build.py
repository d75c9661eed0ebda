"""From the name a model wrote to the one tool it means."""

from __future__ import annotations

from unicodedata import normalize

from hypothesis import given
from hypothesis import strategies as st

from fingerpost.call.build import ResolvedTool, ToolNotFound, get_operation, resolve_tool
from fingerpost.records import ToolCall
from tests.kit.cards import snapshot
from tests.kit.tables import table
from tests.requirements import proves

CONSOLIDATED = {
    "name": "file_operations",
    "inputSchema": {"type": "object", "properties": {"operation": {"enum": ["read_file", "write_file"]}}},
}
TOOLS = snapshot(
    files=[{"name": "read_file"}, CONSOLIDATED, {"name": "ai.read"}],
    web=[{"name": "search"}, {"name": "get-page"}],
    shop=[{"name": "search"}],
)


def resolve(name: str, **arguments: str) -> ResolvedTool:
    found = resolve_tool(ToolCall(name=name, arguments=arguments), TOOLS)
    assert isinstance(found, ResolvedTool), found
    return found


@proves("C2")
@table(
    ("written", "key"),
    [
        ("files/read_file", "files/read_file"),
        ("files__read_file", "files/read_file"),
        ("files.read_file", "files/read_file"),
        ("files:read_file", "files/read_file"),
        ("read_file", "files/read_file"),
        ("functions.read_file", "files/read_file"),
        ("mcp__files__read_file", "files/read_file"),
        ("ReadFile", "files/read_file"),
        ("get_page", "web/get-page"),
        ("web/search", "web/search"),
        ("ai.read", "files/ai.read"),
        ("files/ai.read", "files/ai.read"),
    ],
)
def test_the_ways_models_write_a_name_all_lead_to_the_tool(written: str, key: str) -> None:
    assert resolve(written).card.key == key


@proves("C2")
@table(
    "written",
    [
        "file_operations.read_file",
        "files/file_operations.read_file",
        "files__file_operations.read_file",
        "files.file_operations.read_file",
    ],
)
def test_a_dotted_name_is_a_tool_and_its_operation(written: str) -> None:
    found = resolve(written, path="a.md")
    assert found.card.key == "files/file_operations"
    assert found.arguments == {"path": "a.md", "operation": "read_file"}
    assert get_operation(found.card, found.arguments) == "files/file_operations.read_file"


@proves("C2")
def test_an_explicit_operation_is_kept() -> None:
    found = resolve("file_operations.read_file", operation="write_file")
    assert found.arguments == {"operation": "write_file"}


@proves("C2")
def test_a_dot_after_a_tool_without_operations_is_no_operation() -> None:
    assert isinstance(resolve_tool(ToolCall(name="read_file.fast", arguments={}), TOOLS), ToolNotFound)
    assert get_operation(resolve("read_file").card, {"operation": "x"}) == "files/read_file"


@proves("C3")
def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    found = resolve_tool(ToolCall(name="raed_fil", arguments={}), TOOLS)
    assert isinstance(found, ToolNotFound)
    assert found.near[0] == "files/read_file"


@proves("C3", "F20")
def test_a_name_two_servers_share_is_answered_with_both() -> None:
    found = resolve_tool(ToolCall(name="search", arguments={}), TOOLS)
    assert found == ToolNotFound(name="search", near=("shop/search", "web/search"), ambiguous=True)


@given(st.text(max_size=80))
def test_no_name_makes_resolving_fail(name: str) -> None:
    found = resolve_tool(ToolCall(name=name, arguments={}), TOOLS)
    assert isinstance(found, ResolvedTool | ToolNotFound)


@proves("C2")
def test_letters_of_every_script_tell_names_apart() -> None:
    tools = snapshot(
        a=[{"name": "הצג_קובץ1"}, {"name": "Показать-Файл"}, {"name": "表示_1"}, {"name": "कि_1"}]
    )

    def resolve_name(name: str) -> str | None:
        found = resolve_tool(ToolCall(name=name, arguments={}), tools)
        return found.card.name if isinstance(found, ResolvedTool) else None

    assert [resolve_name(name) for name in ("מחק_הכל1", "удалить_1", "削除_1", "का_1", "1")] == [None] * 5
    assert resolve_name("הצג-קובץ1") == "הצג_קובץ1"
    assert resolve_name("a__הצגקובץ1") == "הצג_קובץ1"
    assert resolve_name("показать_файл") == "Показать-Файл"
    assert resolve_name("表示。1") == "表示_1"


@proves("C2")
@given(st.text("אבЖжкиaA1_- ", min_size=1, max_size=5), st.text("אבЖжкиaA1_- ", min_size=1, max_size=5))
def test_a_name_is_taken_for_another_only_where_their_letters_are_the_same(one: str, other: str) -> None:
    def letters(text: str) -> list[str]:
        return [sign for sign in normalize("NFC", text.casefold()) if sign.isalnum()]

    found = resolve_tool(ToolCall(name=other, arguments={}), snapshot(z=[{"name": f"1{one}"}]))
    if isinstance(found, ResolvedTool):
        assert letters(other) in (letters(f"1{one}"), letters(f"z1{one}"))
