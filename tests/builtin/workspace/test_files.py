"""The sixteen operations on files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from mcp_types import Tool

from fingerpost.records import ErrorKind, Json
from tests.kit.workspace import OpenWorkspace, names_in
from tests.requirements import proves

OPERATIONS = (
    "read_file", "read_range", "create_file", "write_file", "append_file", "replace_string", "multi_replace",
    "insert_text", "rename_file", "copy_file", "delete", "list_dir", "find_files", "grep_search",
    "semantic_search", "file_info",
)  # fmt: skip


@proves("U2", "C5")
async def test_there_are_sixteen_operations_and_each_says_what_it_needs(open_workspace: OpenWorkspace):
    async with open_workspace(policy=({"verdict": "allow", "operation": "delete"},)) as workspace:
        card = workspace.router.tools.get("workspace/file_operations")
        assert card is not None
        tool = Tool.model_validate(card.definition)
        assert tuple(tool.input_schema["properties"]["operation"]["enum"]) == OPERATIONS
        assert tool.annotations is not None and tool.annotations.destructive_hint
        for operation in OPERATIONS:
            if operation != "list_dir":
                text = await workspace.expect_error(operation)
                assert f"{operation} needs `" in text and "It takes `" in text
        assert "read_file has no `content`" in await workspace.expect_error(
            "read_file", path="a", content="b"
        )
        assert "list_dir" in (await workspace.files("list_directory")).content


@proves("U2")
async def test_a_file_is_made_read_changed_and_taken_away(open_workspace: OpenWorkspace, folder: Path):
    async with open_workspace() as workspace:
        assert "Created docs/a.md" in await workspace.expect_success(
            "create_file", path="docs/a.md", content="one\ntwo\n"
        )
        assert await workspace.expect_success("read_file", path="docs/a.md") == "one\ntwo\n"
        assert "exists already" in await workspace.expect_error("create_file", path="docs/a.md", content="x")
        await workspace.expect_success("append_file", path="docs/a.md", content="three\n")
        await workspace.expect_success("insert_text", path="docs/a.md", line=1, content="zero")
        text = await workspace.expect_success(
            "replace_string", path="docs/a.md", old_string="two", new_string="2"
        )
        assert "-two" in text and "+2" in text
        assert (folder / "docs/a.md").read_text() == "zero\none\n2\nthree\n"
        await workspace.expect_success("copy_file", path="docs/a.md", new_path="b.md")
        await workspace.expect_success("rename_file", path="docs", new_path="pages")
        assert names_in(folder) == ["a.md", "b.md", "pages"]
        assert "is not replaced" in await workspace.expect_error(
            "copy_file", path="b.md", new_path="pages/a.md"
        )
        assert "new_path=pages/b.md" in await workspace.expect_error(
            "rename_file", path="b.md", new_path="pages"
        )
        await workspace.expect_success("write_file", path="b.md", content="new")
        assert (folder / "b.md").read_text() == "new"
        assert "b.md  3 bytes" in await workspace.expect_success("list_dir", depth=2)
        assert (await workspace.expect_success("find_files", pattern="**/*.md")).split() == [
            "b.md",
            "pages/a.md",
        ]
        output = await workspace.expect_success("file_info", path="b.md")
        assert "size: 3 bytes" in output and "sha256: " in output


@proves("U2", "C6")
async def test_deleting_asks_and_everything_else_inside_does_not(open_workspace: OpenWorkspace, folder: Path):
    (folder / "a").mkdir()
    (folder / "a" / "b.txt").write_text("kept")
    async with open_workspace() as workspace:
        asked = await workspace.files("delete", path="a", recursive=True)
        assert asked.error is ErrorKind.AUTHORIZATION_REQUIRED
        assert (folder / "a" / "b.txt").exists()
    async with open_workspace(policy=({"verdict": "allow", "operation": "delete"},)) as workspace:
        assert "with 1 entries" in await workspace.expect_error("delete", path="a")
        text = await workspace.expect_success("delete", path="a", recursive=True)
        assert "a/b.txt" in text and not (folder / "a").exists()


@proves("U2")
async def test_several_replacements_are_all_checked_before_the_first_is_made(
    open_workspace: OpenWorkspace, folder: Path
):
    (folder / "a.py").write_text("x = 1\ny = 1\n")
    (folder / "b.py").write_text("z = 1\n")
    edits: list[Json] = [
        {"old_string": "x = 1", "new_string": "x = 2"},
        {"path": "b.py", "old_string": "missing", "new_string": ""},
    ]
    async with open_workspace() as workspace:
        assert "does not contain" in await workspace.expect_error("multi_replace", path="a.py", edits=edits)
        assert (folder / "a.py").read_text() == "x = 1\ny = 1\n"
        edits[1] = {"path": "b.py", "old_string": "z", "new_string": "q"}
        text = await workspace.expect_success("multi_replace", path="a.py", edits=edits)
        assert "Changed a.py" in text and "Changed b.py" in text
        assert (folder / "a.py").read_text() == "x = 2\ny = 1\n"
        edit: dict[str, Json] = {"old_string": "y = 1", "new_string": "y = 2"}
        again: list[Json] = [{**edit, "path": "./a.py"}, {**edit, "path": "a.py"}]
        assert "two ways" in await workspace.expect_error("multi_replace", edits=again)


@proves("U2")
async def test_a_replacement_that_is_not_clear_says_where_it_might_be(
    open_workspace: OpenWorkspace, folder: Path
):
    (folder / "a.py").write_text("def load(path):\n    return 1\n\ndef save(path):\n    return 1\n")
    async with open_workspace() as workspace:
        text = await workspace.expect_error(
            "replace_string", path="a.py", old_string="return 1", new_string="2"
        )
        assert "2 times (line 2, 5)" in text and "all: true" in text
        text = await workspace.expect_error(
            "replace_string", path="a.py", old_string="def laod(path):", new_string=""
        )
        assert "Line 1 is near: def load(path):" in text
        text = await workspace.expect_error(
            "replace_string", path="a.py", old_string="def save(path):\n  x", new_string=""
        )
        assert "stands in line 4" in text
        await workspace.expect_success(
            "replace_string", path="a.py", old_string="return 1", new_string="return 2", all=True
        )
        assert (folder / "a.py").read_text().count("return 2") == 2


@proves("U2")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\xef\xbb\xbfone\r\ntwo\r\n", b"\xef\xbb\xbfone\r\n2\r\nmore\r\n"),
        ("one\ntwo\n".encode("utf-16"), "one\n2\nmore\n".encode("utf-16")),
        ("für\ntwo\n".encode("latin-1"), "für\n2\nmore\n".encode("latin-1")),
        (b"one\r\ntwo\nthree\r\n", b"one\r\n2\nmore\nthree\r\n"),
        (b"one\rtwo\r", b"one\r2\rmore\r"),
    ],
)
async def test_an_edit_keeps_encoding_mark_and_line_ends(
    open_workspace: OpenWorkspace, folder: Path, before: bytes, after: bytes
):
    (folder / "a.txt").write_bytes(before)
    async with open_workspace() as workspace:
        await workspace.expect_success("replace_string", path="a.txt", old_string="two", new_string="2\nmore")
    assert (folder / "a.txt").read_bytes() == after


@proves("U2")
async def test_an_encoding_that_lacks_a_character_is_not_spoiled(open_workspace: OpenWorkspace, folder: Path):
    (folder / "a.txt").write_bytes("für".encode("latin-1"))
    async with open_workspace() as workspace:
        assert "Latin-1" in await workspace.expect_success("read_file", path="a.txt")
        text = await workspace.expect_error("replace_string", path="a.txt", old_string="r", new_string="שלום")
        assert "latin-1" in text
    assert (folder / "a.txt").read_bytes() == "für".encode("latin-1")


@proves("U2")
async def test_binary_files_are_described_not_dumped(open_workspace: OpenWorkspace, folder: Path):
    (folder / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 10)
    async with open_workspace() as workspace:
        text = await workspace.expect_success("read_file", path="a.png")
        assert "binary, not shown" in text and "image/png" in text and "2568 bytes" in text
        assert "binary" in await workspace.expect_error("insert_text", path="a.png", line=0, content="x")


@proves("U2")
async def test_a_huge_file_is_read_in_parts_without_reading_it_whole(
    open_workspace: OpenWorkspace, folder: Path
):
    with (folder / "huge.log").open("wb") as file:
        for start in range(0, 200_000, 1000):
            file.write(b"".join(b"line %d\n" % number for number in range(start + 1, start + 1001)))
        file.truncate(file.tell() + 40 * 2**30)  # a hole of 40 GiB that must not be read
    async with open_workspace(read_bytes=4096) as workspace:
        text = await workspace.expect_success("read_file", path="huge.log")
        assert text.startswith("line 1\n") and "start_line=" in text and len(text) < 5000
        text = await workspace.expect_success(
            "read_range", path="huge.log", start_line=150_000, end_line=150_001
        )
        assert text == "[huge.log, lines 150000–150001]\nline 150000\nline 150001\n"
        assert "4096 bytes can be edited" in await workspace.expect_error(
            "replace_string", path="huge.log", old_string="a", new_string="b"
        )


@proves("U2")
async def test_ranges_of_lines(open_workspace: OpenWorkspace, folder: Path):
    (folder / "a.txt").write_text("".join(f"{number}\n" for number in range(1, 11)) + "last")
    async with open_workspace() as workspace:
        assert (
            await workspace.expect_success("read_range", path="a.txt", start_line=10)
            == "[a.txt, lines 10–11 of 11]\n10\nlast"
        )
        text = await workspace.expect_success("read_range", path="a.txt", start_line=-2)
        assert text == "[a.txt, the last 2 lines]\n10\nlast"
        assert "has 11 lines" in await workspace.expect_error("read_range", path="a.txt", start_line=12)
        assert "no range" in await workspace.expect_error(
            "read_range", path="a.txt", start_line=5, end_line=4
        )


@proves("U2")
async def test_a_write_is_whole_or_not_at_all_and_keeps_permissions(
    open_workspace: OpenWorkspace, folder: Path
):
    script = folder / "run.sh"
    script.write_text("echo 1\n")
    script.chmod(0o750)
    other = folder.parent / "other-name"
    os.link(script, other)  # a second name of the same file, outside
    async with open_workspace(write_bytes=2000) as workspace:
        await workspace.expect_success("write_file", path="run.sh", content="echo 2\n")
        assert stat.S_IMODE(script.stat().st_mode) == 0o750
        assert other.read_text() == "echo 1\n"
        assert "2000 is the most" in await workspace.expect_error(
            "write_file", path="run.sh", content="x" * 2001
        )
        assert script.read_text() == "echo 2\n"
        script.chmod(0o440)
        assert "read-only" in await workspace.expect_error("write_file", path="run.sh", content="echo 3\n")
    assert names_in(folder) == ["run.sh"]  # nothing temporary is left


@proves("U2")
async def test_what_decides_about_fingerpost_or_git_is_never_written(
    open_workspace: OpenWorkspace, folder: Path
):
    (folder / ".git" / "hooks").mkdir(parents=True)
    (folder / "sub").mkdir()
    (folder / "sub" / "link").symlink_to("../.git")
    paths = (
        ".git/hooks/pre-commit", "FINGERPOST.TOML", "fingerpost.toml", "sub/mcp.json", "sub/link/config",
        ".GIT/x", "profiles/mine.toml", ".env",
    )  # fmt: skip
    async with open_workspace() as workspace:
        for path in paths:
            assert "protected" in await workspace.expect_error("create_file", path=path, content="x"), path
        await workspace.expect_success("create_file", path="x.txt", content="x")
        assert "protected" in await workspace.expect_error(
            "rename_file", path="x.txt", new_path=".git/hooks/post-merge"
        )
        assert "protected" in await workspace.expect_error("rename_file", path=".git", new_path="git")
        await workspace.expect_success(
            "create_file", path="sub/profiles/mine.toml", content="x"
        )  # only at the root
    assert not any((folder / ".git" / "hooks").iterdir())


@proves("U2")
async def test_where_lines_end_with_a_lone_return_they_go_on_doing_so(
    open_workspace: OpenWorkspace, folder: Path
):
    file = folder / "old.txt"
    async with open_workspace() as workspace:
        for number, expected in ((2, b"one\rZ\rtwo\r"), (0, b"one\rtwo\rZ\r"), (1, b"Z\rone\rtwo\r")):
            file.write_bytes(b"one\rtwo\r")
            await workspace.expect_success("insert_text", path="old.txt", line=number, content="Z")
            assert file.read_bytes() == expected
        await workspace.expect_success("append_file", path="old.txt", content="three\n")
        await workspace.expect_success(
            "replace_string", path="old.txt", old_string="one\ntwo", new_string="1\r\n2"
        )
        assert file.read_bytes() == b"Z\r1\r2\rthree\r"
