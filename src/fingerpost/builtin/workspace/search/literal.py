"""A text as it stands, in whatever case, and however its letters are put together."""

from __future__ import annotations

import unicodedata


class LiteralFinder:
    """Looks for a text literally."""

    def __init__(self, query: str, *, match_case: bool) -> None:
        self._match_case = match_case
        folded = query if match_case else query.casefold()
        # é is one character or two, and files have either.
        self._forms = tuple(dict.fromkeys(unicodedata.normalize(form, folded) for form in ("NFC", "NFD")))
        self._bytes = folded.encode("utf-8", "surrogatepass") if folded.isascii() else None

    def may_match(self, data: bytes) -> bool:
        if data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[:4] == b"\0\0\xfe\xff":
            return True  # UTF-16 and UTF-32: only the text can tell
        if self._bytes is None:
            return not data.isascii()
        return self._bytes in (data if self._match_case else data.lower())

    def find_lines(self, text: str, limit: int) -> list[int]:
        found: list[int] = []
        text = text if self._match_case else _fold_case(text)
        at, line, counted = self._find_next(text, 0), 0, 0
        while at >= 0 and len(found) < limit:
            line += text.count("\n", counted, at)
            counted = at
            found.append(line)
            end = text.find("\n", at)
            at = -1 if end < 0 else self._find_next(text, end)
        return found

    def _find_next(self, text: str, start: int) -> int:
        return min((at for form in self._forms if (at := text.find(form, start)) >= 0), default=-1)


def _fold_case(text: str) -> str:
    return text.lower() if text.isascii() else text.casefold()
