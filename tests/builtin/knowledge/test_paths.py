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
from tests.kit.knowledge import OpenHouse, refused, said
from tests.requirements import proves

SECRET = "the outside is secret"


@pytest.fixture
def trapped(notes: Path) -> Path:
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


def joined(parts: list[str], start: str, between: str) -> str:
    return start + between.join(parts)


PATHS = st.builds(
    joined,
    st.lists(PARTS, min_size=1, max_size=6),
    st.sampled_from(["", "/", "./", "//", "\\", "~/", "file://", " "]),
    st.sampled_from(["/", "\\", "//"]),
)


@pytest.fixture
def base(trapped: Path) -> Iterator[KnowledgeBase]:
    made = KnowledgeBase(trapped, file_bytes=10_000, by_meaning=False)
    yield made
    made.close()


@proves("B2")
@examples(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS, absolute=st.booleans())
def test_a_thousand_paths_and_none_leads_out(base: KnowledgeBase, path: str, absolute: bool):
    given_path = f"{base.folder.root}/{path}" if absolute else path
    for work in (
        lambda: read_note(base, given_path, "", 1, 100),
        lambda: list_folder(base, given_path, 3),
        lambda: base.folder.read_bytes(base.folder.split_path(given_path), 1000).decode(),
    ):
        try:
            told = work()
        except (ToolRefused, OSError):
            continue
        assert SECRET not in told and "secret.md" not in told


async def test_nothing_outside_is_found_listed_or_read(open_house: OpenHouse, trapped: Path):
    async with open_house() as router:
        found = await said(router, "search_knowledge_base", query="what is secret?")
        assert SECRET not in found and "secret.md" not in found
        assert "door" not in await said(router, "list_kb_directory")
        for path in ("window.md", "door/secret.md", "../secret.md", f"{trapped.parent}/secret.md"):
            await refused(router, "read_kb_file", path=path)
        assert SECRET not in await said(router, "load_kos_context")


def test_a_folder_exchanged_for_a_link_after_the_look_is_not_followed(base: KnowledgeBase, trapped: Path):
    base.refresh()
    note = base.find_note("garden/soil.md")
    (trapped / "garden").rename(trapped / "moved")
    (trapped.parent / "outside" / "soil.md").write_text(SECRET, encoding="utf-8")
    (trapped / "garden").symlink_to(trapped.parent / "outside")
    with pytest.raises(ToolRefused):
        base.read_text(note)
