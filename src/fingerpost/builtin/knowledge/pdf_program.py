"""Reads one PDF from standard input and writes its text, one line of JSON for each page.

`PdfReader` starts it as a separate process, so that an invalid file (endless work, unlimited memory, a crash)
affects only this process. It imports nothing from Fingerpost.
"""

from __future__ import annotations

import json
import resource
import sys
from contextlib import suppress

MAX_PAGES = 2000
MAX_CHARACTERS = 4_000_000
MAX_MEMORY_BYTES = 2 * 1024**3
MISSING_LIBRARY_MESSAGE = "reading PDF files needs the extra pdf: pip install 'fingerpost[pdf]'"


def write_line(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def main() -> None:
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    try:
        from pypdf import PdfReader
    except ImportError:
        return write_line(problem=MISSING_LIBRARY_MESSAGE)
    try:
        reader = PdfReader(sys.stdin.buffer, strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            return write_line(problem="it is encrypted with a password")
        _read_pages(reader)
    except (Exception, RecursionError, MemoryError) as error:  # noqa: BLE001 - invalid files raise any error
        write_line(problem=f"it is broken: {type(error).__name__}: {str(error)[:200]}")
    return None


def _read_pages(reader: object) -> None:
    from pypdf import PdfReader

    assert isinstance(reader, PdfReader)
    title = reader.metadata.title if reader.metadata is not None else None
    write_line(title=str(title)[:300] if title else "")
    left = MAX_CHARACTERS
    for number, page in enumerate(reader.pages, start=1):
        if number > MAX_PAGES or left <= 0:
            return write_line(problem=f"only the first {number - 1} pages are searched")
        try:
            text = page.extract_text()[:left]
        except Exception:  # noqa: BLE001 - an unreadable page must not affect others
            text = ""
        left -= len(text)
        write_line(page=text.encode("utf-8", "replace").decode())
    return None


if __name__ == "__main__":
    main()
