"""Reads one PDF from standard input and writes its text, one line of JSON for each page.

A program of its own, started by `pdf`: what a strange file makes of a parser (endless work, memory without
end, a crash) then ends with this process. It imports nothing of ours.
"""

from __future__ import annotations

import json
import resource
import sys
from contextlib import suppress

MOST_PAGES = 2000
MOST_CHARACTERS = 4_000_000
MEMORY = 2 * 1024**3
NOT_HERE = "reading PDF files needs the extra pdf: pip install 'fingerpost[pdf]'"


def tell(**told: object) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def main() -> None:
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        from pypdf import PdfReader
    except ImportError:
        return tell(problem=NOT_HERE)
    try:
        reader = PdfReader(sys.stdin.buffer, strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            return tell(problem="it is encrypted with a password")
        _read(reader)
    except (Exception, RecursionError, MemoryError) as error:  # noqa: BLE001 - strange files raise strange things
        tell(problem=f"it is broken: {type(error).__name__}: {str(error)[:200]}")
    return None


def _read(reader: object) -> None:
    from pypdf import PdfReader

    assert isinstance(reader, PdfReader)
    title = reader.metadata.title if reader.metadata is not None else None
    tell(title=str(title)[:300] if title else "")
    left = MOST_CHARACTERS
    for number, page in enumerate(reader.pages, start=1):
        if number > MOST_PAGES or left <= 0:
            return tell(problem=f"only the first {number - 1} pages are searched")
        try:
            text = page.extract_text()[:left]
        except Exception:  # noqa: BLE001 - one page that cannot be read must not hide the others
            text = ""
        left -= len(text)
        tell(page=text.encode("utf-8", "replace").decode())
    return None


if __name__ == "__main__":
    main()
