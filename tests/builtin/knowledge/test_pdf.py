"""PDF files: found by page, and never a reason to stop."""

from __future__ import annotations

from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter

from fingerpost.builtin.knowledge import KnowledgeBase
from fingerpost.builtin.knowledge.documents import PdfReader as OurReader
from tests.kit.knowledge import OpenKnowledge, expect_error, expect_success
from tests.requirements import proves

pytestmark = pytest.mark.process

PATIENCE = 60.0


def write_pdf(*pages: str) -> bytes:
    """A small document, written by hand: one line of text on each page."""
    objects = ["<</Type/Catalog/Pages 2 0 R>>", ""]
    kids: list[str] = []
    for text in pages:
        content = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET"
        objects.append(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1<</Type/Font"
            f"/Subtype/Type1/BaseFont/Helvetica>>>>>>/Contents {len(objects) + 2} 0 R>>"
        )
        kids.append(f"{len(objects)} 0 R")
        objects.append(f"<</Length {len(content)}>>stream\n{content}\nendstream")
    objects[1] = f"<</Type/Pages/Kids[{' '.join(kids)}]/Count {len(pages)}>>"
    made = b"%PDF-1.4\n"
    places: list[int] = []
    for number, each in enumerate(objects, start=1):
        places.append(len(made))
        made += f"{number} 0 obj\n{each}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    size = len(objects) + 1
    made += f"xref\n0 {size}\n0000000000 65535 f \n{table}".encode()
    return made + f"trailer<</Size {size}/Root 1 0 R>>\nstartxref\n{len(made) - 0}\n%%EOF".encode()


def encrypt_pdf(content: bytes, folder: Path) -> bytes:
    (folder / "plain.pdf").write_bytes(content)
    writer = PdfWriter(clone_from=PdfReader(folder / "plain.pdf"))
    writer.encrypt("secret", algorithm="AES-128")
    writer.write(folder / "locked.pdf")
    return (folder / "locked.pdf").read_bytes()


@proves("B2")
async def test_a_passage_of_a_pdf_is_found_with_its_page(open_knowledge: OpenKnowledge, notes: Path):
    (notes / "report.pdf").write_bytes(write_pdf("The zeppelin lands.", "The submarine dives deep."))
    async with open_knowledge() as router:
        found = await expect_success(router, "search_knowledge_base", query="submarine")
        while "still being read" in found:  # where starting the reader takes longer than a search waits
            found = await expect_success(router, "search_knowledge_base", query="submarine")
        assert "[1] report.pdf page 2 · report" in found
        page = await expect_success(router, "read_kb_file", path="report.pdf", section="page 2")
        assert "The submarine dives deep." in page and "zeppelin" not in page
        assert "has 2 pages" in await expect_error(
            router, "read_kb_file", path="report.pdf", section="page 9"
        )


@proves("B2")
def test_a_strange_pdf_is_named_with_what_is_wrong_and_hides_no_other(notes: Path, tmp_path: Path):
    good = write_pdf("The zeppelin lands.")
    (notes / "good.pdf").write_bytes(good)
    (notes / "locked.pdf").write_bytes(encrypt_pdf(good, tmp_path))
    (notes / "broken.pdf").write_bytes(b"%PDF-1.4\n" + b"\xff\0garbage" * 50)
    (notes / "empty.pdf").write_bytes(b"")
    (notes / "scan.pdf").write_bytes(write_pdf(""))
    (notes / "large.pdf").write_bytes(good + b" " * 50_000)
    base = KnowledgeBase(notes, file_bytes=50_000, by_meaning=False)
    assert base.wait_until_indexed(PATIENCE)
    problems = {note.path: note.problem for note in base.library.problems}
    assert problems["locked.pdf"] == "it is encrypted with a password"
    assert problems["broken.pdf"].startswith("it is broken")
    assert problems["empty.pdf"].startswith("it is broken")
    assert problems["scan.pdf"] == "it holds no text: it may be a scan"
    assert problems["large.pdf"] == "it is larger than 50,000 bytes"
    assert "good.pdf" not in problems
    assert [hit.passage.source for hit in base.search("zeppelin", 5).hits] == ["good.pdf"]
    base.close()


def test_a_pdf_that_takes_too_long_is_given_up(notes: Path):
    (notes / "report.pdf").write_bytes(write_pdf("words"))
    base = KnowledgeBase(notes, file_bytes=50_000, by_meaning=False)
    with base.folder.open_path(("report.pdf",)) as handle:
        assert OurReader().read(handle, seconds=0.001).problem == "reading it took longer than 0.001 s"
    base.close()
