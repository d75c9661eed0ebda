"""PDF files as text, page by page, by a program that can be ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Final, cast

import orjson

from fingerpost.builtin.knowledge.blocks import MAX_PASSAGES, pack_passages, split_paragraphs
from fingerpost.builtin.passages import TextPassage
from fingerpost.frozen import frozen

PDF_TIMEOUT_S: Final = 60.0  # for one file
_PASSED_ENVIRONMENT: Final = (
    "PATH",
    "LD_LIBRARY_PATH",
)  # to find Python itself by; nothing else is its business
_PROGRAM: Final = Path(__file__).with_name("pdf_program.py")


@frozen
class PdfDocument:
    """What could be read of a PDF. Pages may be there even where there is a problem."""

    pages: tuple[str, ...] = ()
    title: str = ""
    problem: str = ""


class PdfReader:
    """Reads one file after the other, each in a process of its own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._closed = False

    def read(self, handle: int, *, seconds: float = PDF_TIMEOUT_S) -> PdfDocument:
        """The text of an open file. Never raises for what is in it."""
        with self._lock:
            if self._closed:
                return PdfDocument(problem="it was not read to its end")
            self._running = process = subprocess.Popen(
                [sys.executable, "-I", str(_PROGRAM)],
                stdin=handle,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={name: os.environ[name] for name in _PASSED_ENVIRONMENT if name in os.environ},
            )
        try:
            told, _ = process.communicate(timeout=seconds)
            late = False
        except subprocess.TimeoutExpired:
            process.kill()
            told, _ = process.communicate()
            late = True
        finally:
            self._running = None
        document = _build_document(_parse_lines(told))
        if late:
            return _add_problem(document, f"reading it took longer than {seconds:g} s")
        if process.returncode != 0 and not document.problem:
            return _add_problem(document, "it is broken: reading it ended the reader")
        if not document.problem and not any(page.strip() for page in document.pages):
            return _add_problem(document, "it holds no text: it may be a scan")
        return document

    def close(self) -> None:
        """End what runs, and begin nothing more."""
        with self._lock:
            self._closed = True
            if (running := self._running) is not None:
                running.kill()


def _add_problem(document: PdfDocument, problem: str) -> PdfDocument:
    return PdfDocument(pages=document.pages, title=document.title, problem=problem)


def _parse_lines(output: bytes) -> Iterator[Mapping[str, Any]]:
    for line in output.splitlines():
        try:
            yield cast("Mapping[str, Any]", orjson.loads(line))
        except orjson.JSONDecodeError:  # cut off where the process was ended
            return


def _build_document(lines: Iterable[Mapping[str, Any]]) -> PdfDocument:
    pages: list[str] = []
    title = problem = ""
    for line in lines:
        if "page" in line:
            pages.append(str(line["page"]))
        title = str(line.get("title", title))
        problem = str(line.get("problem", problem))
    return PdfDocument(pages=tuple(pages), title=" ".join(title.split()), problem=problem)


def build_pdf_passages(path: str, title: str, pages: Iterable[str]) -> tuple[TextPassage, ...]:
    """The passages of a document, each with its page."""
    return tuple(islice(_iterate_pdf_passages(path, title, pages), MAX_PASSAGES))


def _iterate_pdf_passages(path: str, title: str, pages: Iterable[str]) -> Iterator[TextPassage]:
    for number, text in enumerate(pages, start=1):
        for passage in pack_passages(path, title, split_paragraphs(text.split("\n"))):
            yield TextPassage(source=path, heading=title, text=passage.text, page=number)
