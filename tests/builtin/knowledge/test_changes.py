"""Notes change, come and go while the knowledge base is open; some cannot be read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from fingerpost import Router
from fingerpost.builtin.knowledge import KnowledgeBase
from fingerpost.builtin.knowledge.base import FRESH_SECONDS
from tests.kit.knowledge import OpenKnowledge, expect_success
from tests.requirements import proves

PATIENCE = 60.0


async def until(router: Router, query: str, fits: Callable[[str], bool]) -> str:
    with anyio.fail_after(PATIENCE):
        while True:
            found = await expect_success(router, "search_knowledge_base", query=query)
            if fits(found):
                return found
            await anyio.sleep(0.05)


@proves("U6")
async def test_a_changed_a_new_and_a_deleted_note_are_followed(open_knowledge: OpenKnowledge, notes: Path):
    async with open_knowledge() as router:
        await expect_success(router, "search_knowledge_base", query="compost")
        (notes / "garden" / "soil.md").write_text("# Soil\n\nNow it is about zeppelins.\n", encoding="utf-8")
        await until(router, "zeppelins", lambda found: "soil.md" in found)
        (notes / "new.md").write_text("# Submarines\n\nA submarine dives.\n", encoding="utf-8")
        await until(router, "submarine", lambda found: "new.md:3" in found)
        (notes / "new.md").unlink()
        await until(router, "submarine", lambda found: "new.md" not in found)


@proves("U6")
def test_only_what_changed_is_read_again(notes: Path):
    base = KnowledgeBase(notes, file_bytes=10_000, by_meaning=False)
    base.refresh()
    before = base.library.notes
    (notes / "car.txt").write_text("Sold.\n", encoding="utf-8")
    time.sleep(FRESH_SECONDS)
    base.refresh()
    after = base.library.notes
    assert {path for path in after if after[path] is not before[path]} == {"car.txt"}
    base.close()


@proves("U6")
def test_it_is_followed_without_being_asked(notes: Path):
    base = KnowledgeBase(notes, file_bytes=10_000, by_meaning=False)
    base.start_polling(0.02)
    deadline = time.monotonic() + PATIENCE
    while "car.txt" not in base.library.notes and time.monotonic() < deadline:
        time.sleep(0.02)
    (notes / "car.txt").unlink()
    while "car.txt" in base.library.notes and time.monotonic() < deadline:
        time.sleep(0.02)
    base.close()
    assert len(base.library.notes) == 4


@proves("U6")
async def test_a_note_that_cannot_be_read_is_named_and_hides_no_other(
    open_knowledge: OpenKnowledge, notes: Path
):
    (notes / "binary.md").write_bytes(b"\0\1\2")
    (notes / "huge.txt").write_text("evening " * 1000, encoding="utf-8")
    (notes / "link.md").symlink_to(notes / "car.txt")
    os.mkfifo(notes / "pipe.md")
    async with open_knowledge(file_bytes=2000) as router:
        found = await expect_success(router, "search_knowledge_base", query="six in the evening")
        assert "garden/watering.md" in found
        assert "Not searched: binary.md (it is not text), huge.txt (it is larger than 2,000 bytes)" in found
        assert "link.md" not in found and "pipe.md" not in found


async def test_encodings_are_understood(open_knowledge: OpenKnowledge, notes: Path):
    (notes / "old.txt").write_bytes("Das Gerät heißt Frühstücksbrett.".encode("cp1252"))
    (notes / "wide.txt").write_bytes("The zeppelin lands.".encode("utf-16"))
    (notes / "marked.md").write_bytes("\ufeff# Marked\r\n\r\nThe submarine dives.\r\n".encode())
    async with open_knowledge() as router:
        assert "Frühstücksbrett" in await expect_success(
            router, "search_knowledge_base", query="frühstücksbrett"
        )
        assert "wide.txt:1" in await expect_success(router, "search_knowledge_base", query="zeppelin")
        assert "marked.md:3 · Marked" in await expect_success(
            router, "search_knowledge_base", query="submarine"
        )
