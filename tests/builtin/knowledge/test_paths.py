"""No path leads out of the folder of notes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from fingerpost.builtin.knowledge import KnowledgeBase
from fingerpost.builtin.knowledge.views import list_folder, read_note
from fingerpost.builtin.toolkit import ToolRefused
from tests.kit.knowledge import OpenKnowledge, expect_error, expect_success
from tests.requirements import proves

SECRET = "the outside is secret"


@pytest.fixture
def notes_with_traps(notes: Path) -> Path:
    """A folder full of ways out."""
    outside = notes.parent / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text(SECRET, encoding="utf-8")
    (notes.parent / "secret.md").write_text(SECRET, encoding="utf-8")
    (notes / "door").symlink_to(outside)
    (notes / "window.md").symlink_to(outside / "secret.md")
    (notes / "up").symlink_to("..")
    (notes / "garden" / "chain").symlink_to("../door")
    return notes


PARTS = st.sampled_from(
    ["..", ".", "", "door", "up", "window.md", "secret.md", "outside", "garden", "chain", "notes", "~", "…",
     "..\u200b", "．．", "%2e%2e", "..%2f", "DOOR", "..\\..", "secret", "C:", "a\0b", "x" * 300]
)  # fmt: skip


def join_parts(parts: list[str], start: str, between: str) -> str:
    return start + between.join(parts)


PATHS = st.builds(
    join_parts,
    st.lists(PARTS, min_size=1, max_size=6),
    st.sampled_from(["", "/", "./", "//", "\\", "~/", "file://", " "]),
    st.sampled_from(["/", "\\", "//"]),
)


@pytest.fixture
def base(notes_with_traps: Path) -> Iterator[KnowledgeBase]:
    made = KnowledgeBase(notes_with_traps, file_bytes=10_000, by_meaning=False)
    yield made
    made.close()


@pytest.mark.slow
@proves("B2")
@examples(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS, absolute=st.booleans())
def test_no_path_leads_out(base: KnowledgeBase, path: str, absolute: bool):
    given_path = f"{base.folder.root}/{path}" if absolute else path
    for work in (
        lambda: read_note(base, given_path, "", 1, 100),
        lambda: list_folder(base, given_path, 3),
        lambda: base.folder.read_bytes(base.folder.split_path(given_path), 1000).decode(),
    ):
        try:
            reported = work()
        except (ToolRefused, OSError):
            continue
        assert SECRET not in reported and "secret.md" not in reported


async def test_nothing_outside_is_found_listed_or_read(open_knowledge: OpenKnowledge, notes_with_traps: Path):
    async with open_knowledge() as router:
        found = await expect_success(router, "search_knowledge_base", query="what is secret?")
        assert SECRET not in found and "secret.md" not in found
        assert "door" not in await expect_success(router, "list_kb_directory")
        for path in ("window.md", "door/secret.md", "../secret.md", f"{notes_with_traps.parent}/secret.md"):
            await expect_error(router, "read_kb_file", path=path)
        assert SECRET not in await expect_success(router, "load_kos_context")


def test_a_folder_exchanged_for_a_link_after_the_look_is_not_followed(
    base: KnowledgeBase, notes_with_traps: Path
):
    base.refresh()
    note = base.find_note("garden/soil.md")
    (notes_with_traps / "garden").rename(notes_with_traps / "moved")
    (notes_with_traps.parent / "outside" / "soil.md").write_text(SECRET, encoding="utf-8")
    (notes_with_traps / "garden").symlink_to(notes_with_traps.parent / "outside")
    with pytest.raises(ToolRefused):
        base.read_text(note)
