"""Finding things in the folder: by text, by pattern, by name, by meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.builtin.workspace.folder_walk import IgnoreRules, parse_patterns
from fingerpost.builtin.workspace.search import PatternFinder
from tests.kit.tables import table
from tests.kit.workspace import OpenWorkspace
from tests.requirements import proves


@pytest.fixture
def tree(folder: Path) -> Path:
    """A small project with what a search has to cope with."""
    for name, text in {
        "src/app.py": "import time\n\ndef retry(call):\n    return call()\n\n# Retry again\n",
        "src/deep/util.py": "RETRY = 3\n",
        "notes/plan.md": "# Plan\nלנסות שוב את הקריאה\nWir versuchen es über Nacht\n",
        "node_modules/lib/index.js": "retry()\n",
        "build/out.txt": "retry\n",
        "build/keep.txt": "retry kept\n",
        ".gitignore": "build/*\n!build/keep.txt\n*.log\n",
        "debug.log": "retry\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "wide.txt").write_bytes("we retry here\n".encode("utf-16"))
    (folder / "binary.bin").write_bytes(b"\0\1retry\0")
    return folder


@proves("C10")
async def test_text_is_found_in_order_with_its_lines(open_workspace: OpenWorkspace, tree: Path):
    async with open_workspace() as workspace:
        text = await workspace.expect_success("grep_search", query="retry")
        assert text.splitlines()[1:] == [
            "build/keep.txt:1: retry kept",
            "src/app.py:3: def retry(call):",
            "src/app.py:6: # Retry again",
            "src/deep/util.py:1: RETRY = 3",
            "wide.txt:1: we retry here",
        ]
        text = await workspace.expect_success(
            "grep_search", query="retry", match_case=True, pattern="*.py", context_lines=1
        )
        assert text.splitlines()[1:] == [
            "src/app.py-2- ", "src/app.py:3: def retry(call):", "src/app.py-4-     return call()",
        ]  # fmt: skip
        text = await workspace.expect_success("grep_search", query="retry", include_ignored=True)
        assert "debug.log:1" in text and "node_modules/lib/index.js:1" in text and "binary" not in text
        assert "build/out.txt" in await workspace.expect_success(
            "grep_search", query="retry", path="build/out.txt"
        )
        assert "No line with 'nowhere'" in await workspace.expect_success("grep_search", query="nowhere")
        text = await workspace.expect_success("grep_search", query="retry", limit=2)
        assert "more than 2" in text and text.count("\n") == 2


@proves("C10")
async def test_other_languages_and_other_ways_to_write_letters(open_workspace: OpenWorkspace, tree: Path):
    async with open_workspace() as workspace:
        assert "plan.md:2" in await workspace.expect_success("grep_search", query="הקריאה")
        assert "plan.md:3" in await workspace.expect_success("grep_search", query="ÜBER")
        assert "plan.md:3" in await workspace.expect_success("grep_search", query="u\u0308ber")


@pytest.mark.process
@proves("C10")
async def test_patterns_run_where_they_can_be_stopped(open_workspace: OpenWorkspace, tree: Path):
    async with open_workspace() as workspace:
        text = await workspace.expect_success("grep_search", query=r"^def \w+\(", regex=True)
        assert text.splitlines()[1:] == ["src/app.py:3: def retry(call):"]
        assert "src/deep/util.py:1" in await workspace.expect_success(
            "grep_search", query="retry = [0-9]", regex=True
        )
        assert "cannot be read" in await workspace.expect_error("grep_search", query="(", regex=True)


@pytest.mark.process
@proves("C10")
def test_a_pattern_that_takes_for_ever_is_given_up() -> None:
    with PatternFinder("(a+)+$", match_case=True, seconds=1) as search, pytest.raises(ToolRefused) as refused:
        search.find_lines("a" * 5000 + "b", 10)
    assert "takes longer than 1 seconds" in refused.value.text


@proves("U2")
async def test_files_are_found_by_the_pattern_of_their_names(open_workspace: OpenWorkspace, tree: Path):
    async with open_workspace() as workspace:

        async def search_paths(pattern: str, path: str = ".") -> list[str]:
            return (await workspace.expect_success("find_files", pattern=pattern, path=path)).split()

        assert await search_paths("*.py") == ["src/app.py", "src/deep/util.py"]
        assert await search_paths("src/*.py") == ["src/app.py"]
        assert await search_paths("**/deep/*.{py,js}") == ["src/deep/util.py"]
        assert await search_paths("deep", "src") == ["src/deep/"]
        assert "Nothing in . fits" in await workspace.expect_success("find_files", pattern="*.log")
        assert "node_modules" not in await workspace.expect_success("list_dir")
        assert "node_modules/" in await workspace.expect_success("list_dir", include_ignored=True)


@proves("A8", "U2")
async def test_passages_are_found_by_meaning_and_follow_changes(open_workspace: OpenWorkspace, folder: Path):
    (folder / "pets.md").write_text("The kitten slept on the sofa all afternoon.\n")
    (folder / "money.md").write_text("Invoices are paid within thirty days.\n")
    async with open_workspace() as workspace:
        outcome = await workspace.call("embedding.query", query="a cat was sleeping", top_k=1)
        assert outcome.success and "pets.md:1–1" in outcome.content and "money" not in outcome.content
        (folder / "pets.md").write_text("Nothing about animals any more.\n")
        (folder / "new.md").write_text("The cat sleeps in the garden.\n")
        text = await workspace.expect_success("semantic_search", query="a cat was sleeping", limit=1)
        assert "new.md:1–1" in text
        (folder / "new.md").unlink()
        assert "new.md" not in await workspace.expect_success("semantic_search", query="a cat was sleeping")
        (folder / "empty").mkdir()
        text = await workspace.expect_success("semantic_search", query="a cat was sleeping", path="empty")
        assert text == "[Nothing in empty is like 'a cat was sleeping'; 2 files are known]"


# After git's own rules.
@table(
    ("patterns", "ignored", "kept"),
    [
        ("*.log", ("a.log", "x/a.log"), ("a.txt", "a.log.txt")),
        ("/a", ("a",), ("x/a",)),
        ("x/a", ("x/a",), ("y/x/a",)),
        ("a/", ("a/",), ("a",)),
        ("**/a", ("a", "x/a", "x/y/a"), ("ab",)),
        ("a/**", ("a/b", "a/b/c"), ("b/a",)),
        ("a/**/b", ("a/b", "a/x/b", "a/x/y/b"), ("b",)),
        ("*.log\n!keep.log", ("a.log",), ("keep.log",)),
        ("!a\na", ("a",), ()),
        ("a?c\n[xy].t\n[!a]z", ("abc", "x.t", "bz"), ("ac", "z.t", "az")),
        ("# comment\n\\#x\na\\ ", ("#x", "a "), ("# comment", "a")),
    ],
)
def test_gitignore_is_read_as_git_reads_it(
    patterns: str, ignored: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    ignoring = IgnoreRules("", parse_patterns(patterns))
    for path in ignored:
        assert ignoring.is_ignored(path.rstrip("/"), folder=path.endswith("/")), path
    for path in kept:
        assert not ignoring.is_ignored(path.rstrip("/"), folder=path.endswith("/")), path
