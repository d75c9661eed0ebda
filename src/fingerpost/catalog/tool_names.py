"""Tool names: keys, names for models, escaping of invisible characters, and unique names."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata
from collections.abc import Collection, Container, Sequence
from dataclasses import replace
from typing import Final

from fingerpost.records import ToolCard
from fingerpost.regex import prepare_re

MAX_EXPOSED_LENGTH: Final = 64
_SEPARATOR: Final = "__"
_HASH_LENGTH: Final = 10
_HASH_MARK: Final = "0"  # ordinary words do not start with it, so few names look hashed by accident
_MAX_SERVER_LENGTH: Final = 24

# Built-in tools that are listed with those of servers.
READ_RESULT: Final = "read_result"
FIND_TOOLS: Final = "find_tools"
RESERVED_NAMES: Final = frozenset((FIND_TOOLS, "describe_tool", "call_tool", READ_RESULT))

_EXACT_NAME = prepare_re(r"[A-Za-z0-9_-]+")
_HASHED_NAME = prepare_re(rf"-{_HASH_MARK}[a-z2-7]{{{_HASH_LENGTH}}}\Z")
_INVALID_CHARACTERS = prepare_re(r"[^A-Za-z0-9_-]+")

# Characters that Unicode classifies as letters, marks or symbols but that draw nothing.
_BLANK_CHARACTERS = prepare_re(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


# Characters that draw nothing or change how later text is drawn: control characters (which start terminal
# escape sequences), direction marks, joiners, tags, variation selectors.
INVISIBLE: Final = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# A joiner or a color modifier after an emoji belongs to the emoji.
_PICTURE_RANGES: Final = "\u2190-\u2bff\U0001f000-\U0001faff"
_INVISIBLE_PATTERN = prepare_re(f"[{INVISIBLE}]")
_UNSEEN_ASCII: Final = bytes(code for code in range(128) if _INVISIBLE_PATTERN.match(chr(code)))
_CHUNK_LENGTH: Final = 16_384  # characters searched at once, because the search blocks other threads


def build_tool_key(server: str, tool: str) -> str:
    """Return `server/tool`. A `/` in the server's name is escaped, so the first one always separates."""
    server = escape_invisible_except(server).replace("/", _escape_character("/"))
    return f"{server}/{escape_invisible_except(tool)}"


def escape_invisible(text: str) -> str:
    r"""Return `text` with invisible characters escaped (`\u200b`), except line ends and tabs.

    Use it for all text of servers that models read: definitions, results, instructions.
    """
    made: list[str] = []
    done = 0
    for start in range(0, len(text), _CHUNK_LENGTH):
        if _is_plain(text[start : start + _CHUNK_LENGTH]):
            continue
        for match in _INVISIBLE_PATTERN.finditer(text, start, start + _CHUNK_LENGTH):
            made += (text[done : match.start()], _escape_match(match))
            done = match.end()
    return "".join((*made, text[done:])) if made else text


def _is_plain(text: str) -> bool:
    """Return whether the text is visible ASCII, the usual case: ten times faster than the pattern."""
    return text.isascii() and len(text.encode().translate(None, _UNSEEN_ASCII)) == len(text)


def _escape_match(match: re.Match[str]) -> str:
    character = match.group()
    before = match.string[match.start() - 1] if match.start() else ""
    if character in "\ufe0f\u200d" and re.match(f"[{_PICTURE_RANGES}]", before):
        return character
    return _escape_character(character)


def escape_invisible_except(text: str, *, keep: str = "") -> str:
    """Return `text` with invisible characters escaped, except those in `keep`.

    A backslash is doubled, so different texts always have different results.
    """
    if text.isprintable() and "\\" not in text and not _BLANK_CHARACTERS.search(text):
        return text
    return "".join(_escape_unless_kept(character, keep) for character in text)


def escape_invisible_json(text: str) -> str:
    """Return JSON text with invisible characters as JSON escapes. Its value is unchanged."""
    if text.isprintable() and not _BLANK_CHARACTERS.search(text):
        return text
    return "".join(
        character
        if character.isprintable() and not _BLANK_CHARACTERS.match(character)
        else json.dumps(character)[1:-1]
        for character in text
    )


def _escape_unless_kept(character: str, keep: str) -> str:
    if character in keep:
        return character
    if character == "\\":
        return "\\\\"
    if character.isprintable() and not _BLANK_CHARACTERS.match(character):
        return character
    return _escape_character(character)


def _escape_character(character: str) -> str:
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def build_exposed_name(server: str, tool: str) -> str:
    """Return the tool's name for models: `^[A-Za-z0-9_-]{1,64}$`, unique and stable."""
    plain = f"{server}{_SEPARATOR}{tool}"
    return plain if _is_exact(server, tool, plain) else build_hashed_name(server, tool)


def build_own_name(server: str, tool: str) -> str:
    """Return the tool's own name if models can use it, else its exposed name."""
    fits = (
        len(tool) <= MAX_EXPOSED_LENGTH
        and _EXACT_NAME.fullmatch(tool) is not None
        and _HASHED_NAME.search(tool) is None
    )
    return tool if fits and tool not in RESERVED_NAMES else build_exposed_name(server, tool)


def build_free_name(server: str, tool: str, taken: Container[str]) -> str:
    """Return the tool's own name, else its exposed name if that is free, else its hashed name."""
    for name in (build_own_name(server, tool), build_exposed_name(server, tool)):
        if name not in taken:
            return name
    return build_hashed_name(server, tool)


def _is_exact(server: str, tool: str, plain: str) -> bool:
    """Return whether server and tool can be derived from the plain form, so that no other key has it."""
    return (
        len(plain) <= MAX_EXPOSED_LENGTH
        and _EXACT_NAME.fullmatch(server) is not None
        and _EXACT_NAME.fullmatch(tool) is not None
        and _SEPARATOR not in server
        and not server.endswith("_")
        and _HASHED_NAME.search(plain) is None
    )


def build_hashed_name(server: str, tool: str) -> str:
    """Return a valid name with a hash, unique for any server and tool."""
    digest = hashlib.sha256(build_tool_key(server, tool).encode(errors="surrogatepass")).digest()
    ending = f"-{_HASH_MARK}{base64.b32encode(digest).decode().lower()[:_HASH_LENGTH]}"
    room = MAX_EXPOSED_LENGTH - len(_SEPARATOR) - len(ending)
    tool_part = _slugify(tool) or "tool"
    server_part = (_slugify(server) or "server")[: max(_MAX_SERVER_LENGTH, room - len(tool_part))]
    return f"{server_part}{_SEPARATOR}{tool_part[: room - len(server_part)]}{ending}"


def _slugify(text: str) -> str:
    """Return `text` in ASCII letters and digits, without accents; other characters become underscores."""
    decomposed = unicodedata.normalize("NFKD", text)
    unaccented = "".join(character for character in decomposed if not unicodedata.combining(character))
    return _INVALID_CHARACTERS.sub("_", unaccented).strip("_")


def make_names_unique(cards: Sequence[ToolCard], unprefixed: Collection[str]) -> list[ToolCard]:
    """Return the cards with unique exposed names. Input and output are sorted by key."""
    if not unprefixed:
        return list(cards)
    taken = {card.exposed_name for card in cards if card.server not in unprefixed}
    named: list[ToolCard] = []
    for card in cards:
        if card.server in unprefixed:
            name = build_free_name(card.server, card.name, taken)
            card = card if name == card.exposed_name else replace(card, exposed_name=name)
            taken.add(name)
        named.append(card)
    return named


def count_edits(one: str, other: str, *, limit: int) -> int:
    """Return the number of inserted, deleted, changed or swapped letters, at most `limit + 1`."""
    from rapidfuzz.distance import OSA  # slow to load, and only misspelt words need it

    return OSA.distance(one, other, score_cutoff=limit)
