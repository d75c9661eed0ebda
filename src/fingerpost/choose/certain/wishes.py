"""Whether a request only asks, or wants something changed."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 2000

_ASKS = re.compile(
    r"^\W{0,5}(?:please |can you |could you )?(?:what|which|who|when|where|how (?:many|much|big|long|old)|is"
    r"|are|does|show|list|read|find|search|look|tell me|print|display|count"
    r"|מה|איזה|אילו|מי|מתי|איפה|כמה|האם|הצגי?|הראי?|תראי?|תציגי?|קראי?|תקראי?|חפשי?|תחפשי?|מצאי?|תמצאי?)\b",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    r"\b(?:delete|remove|erase|write|create|make|add|move|rename|copy|send|post|update|change|edit|replace"
    r"|save|insert|drop|set|commit|reset|overwrite|cancel|book|buy)\b"
    r"|(?:^|\s)ו?(?:ת?מחקי?|ת?כתו?בי?|צרי?|ת?צורי?|הוסיפי?|תוסיפי?|העבירי?|תעבירי?|שלחי?|תשלחי?|שנה|עדכני?)"
    r"(?!\w)",
    re.IGNORECASE,
)


def only_asks(text: str) -> bool:
    """It opens like a question or a wish to see something, and no word of it is about changing anything."""
    said = text[:LONGEST]
    return _ASKS.match(said) is not None and _CHANGES.search(said) is None
