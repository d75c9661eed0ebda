"""Notes parsed from Markdown, plain text and PDF files: front matter, headings, links and passages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal, TypeAlias, cast
from urllib.parse import unquote

import orjson

from fingerpost.builtin.passages import TextPassage
from fingerpost.builtin.toolkit import detect_encoding
from fingerpost.frozen import frozen

NoteKind: TypeAlias = Literal["markdown", "text", "pdf"]


@frozen(kw_only=False)
class FileStamp:
    """Identifies a version of a file without reading it."""

    size: int
    modified_ns: int
    inode: int


@frozen
class NoteHeading:
    """A heading of a note."""

    level: int
    text: str
    line: int  # from 1


@frozen
class NoteReference:
    """A link as written. It is resolved when all notes are known."""

    target: str
    line: int
    by_name: bool  # `[[Name]]`, not a path


@frozen
class FrontMatter:
    """The front matter of a note; empty if there is none."""

    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    date: str = ""
    line_count: int = 0  # number of its lines, fences included

    @classmethod
    def from_lines(cls, lines: Sequence[str]) -> FrontMatter:
        """Parse the front matter. Without one, or if it does not end, return an empty one."""
        if not lines or lines[0].rstrip() != _FRONT_FENCE:
            return cls()
        for place, line in enumerate(lines[1 : MAX_FRONT_LINES + 1], start=1):
            if line.rstrip() in _FRONT_END_FENCES:
                return _build_front_matter(_read_values(lines[1:place]), place + 1)
        return cls()


@frozen
class NoteContent:
    """What a note says about itself."""

    title: str
    front: FrontMatter = field(default_factory=FrontMatter)
    tags: tuple[str, ...] = ()
    headings: tuple[NoteHeading, ...] = ()
    references: tuple[NoteReference, ...] = ()
    line_count: int = 0


@frozen
class ParsedNote(NoteContent):
    """A parsed note."""

    passages: tuple[TextPassage, ...] = ()


@frozen
class KnowledgeNote(NoteContent):
    """The data of one file of the folder."""

    path: str  # relative to the folder, with `/`
    kind: NoteKind
    stamp: FileStamp
    pages: tuple[str, ...] = ()  # of a PDF: reading it again would be slow
    problem: str = ""  # why it, or a part of it, is not searchable

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def stem(self) -> str:
        name = self.path.rpartition("/")[2]
        return name.rpartition(".")[0] or name


def decode_text(content: bytes) -> str | None:
    r"""Return the text with `\n` line ends, or None if the content is no text."""
    found = detect_encoding(content)
    if found is None:
        return None
    mark, encoding = found
    try:
        text = content[len(mark) :].decode(encoding, "replace" if mark else "strict")
    except UnicodeDecodeError:
        # Older Western files. The few bytes that this encoding does not define are replaced.
        text = content.decode("cp1252", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


TARGET_LENGTH: Final = 700  # characters; no paragraph is added beyond this
MAX_PASSAGE_LENGTH: Final = 1400  # of one passage; code up to this length is not split
MAX_PASSAGES: Final = 5000  # of one note


@frozen(kw_only=False)
class TextBlock:
    """Consecutive lines: a paragraph, a list or a code block. Lines count from 1."""

    first: int
    last: int
    text: str


def split_paragraphs(lines: Sequence[str], start: int = 1) -> Iterator[TextBlock]:
    """Yield the groups of lines between empty lines. `start` is the number of the first line."""
    held: list[str] = []
    for number, line in enumerate((*lines, ""), start=start):
        if line.strip():
            held.append(line)
        elif held:
            yield TextBlock(number - len(held), number - 1, "\n".join(held))
            held = []


def pack_passages(source: str, heading: str, blocks: Iterable[TextBlock]) -> Iterator[TextPassage]:
    """Yield the blocks of one section as passages of limited size."""
    held: list[TextBlock] = []
    size = 0
    for block in (piece for whole in blocks for piece in _split_block(whole)):
        if held and size + len(block.text) > TARGET_LENGTH:
            yield _build_passage(source, heading, held)
            held, size = [], 0
        held.append(block)
        size += len(block.text)
    if held:
        yield _build_passage(source, heading, held)


def _build_passage(source: str, heading: str, blocks: Sequence[TextBlock]) -> TextPassage:
    text, first, last = "\n\n".join(block.text for block in blocks), blocks[0].first, blocks[-1].last
    return TextPassage(source=source, heading=heading, text=text, first_line=first, last_line=last)


def _split_block(block: TextBlock) -> Iterator[TextBlock]:
    """Split a block that is too large between lines, or within a line that is too long."""
    if len(block.text) <= MAX_PASSAGE_LENGTH:
        yield block
        return
    held: list[tuple[int, str]] = []
    size = 0
    for number, line in enumerate(block.text.split("\n"), start=block.first):
        for piece in _split_line(line):
            if held and size + len(piece) > TARGET_LENGTH:
                yield _join_lines(held)
                held, size = [], 0
            held.append((number, piece))
            size += len(piece)
    if held:
        yield _join_lines(held)


def _join_lines(held: Sequence[tuple[int, str]]) -> TextBlock:
    return TextBlock(held[0][0], held[-1][0], "\n".join(piece for _, piece in held))


def _split_line(line: str) -> Iterator[str]:
    """Split a line after a sentence, else between words, else anywhere."""
    while len(line) > MAX_PASSAGE_LENGTH:
        sentence = line.rfind(". ", TARGET_LENGTH // 2, TARGET_LENGTH) + 1
        at = sentence or max(line.rfind(" ", TARGET_LENGTH // 2, TARGET_LENGTH), 0) or TARGET_LENGTH
        yield line[:at]
        line = line[at:].lstrip()
    yield line


MAX_FRONT_LINES: Final = 200
MAX_FRONT_ITEMS: Final = 100
MAX_VALUE_LENGTH: Final = 300
_FRONT_FENCE: Final = "---"
_FRONT_END_FENCES: Final = ("---", "...")
_KEY = re.compile(r"([A-Za-z][\w -]{0,60}?)\s{0,20}:(?:\s(.{0,2000})|$)")
_ITEM = re.compile(r"\s{0,40}-\s(.{0,2000})")
_QUOTED = re.compile(r"""\s{0,40}("(?:[^"\\]|\\.){0,2000}"|'(?:[^']|''){0,2000}')""")


def _build_front_matter(values: dict[str, list[str]], line_count: int) -> FrontMatter:
    def first(*names: str) -> str:
        return next((value[0] for name in names if (value := values.get(name))), "")

    def words(*names: str) -> list[str]:
        """Return the values of a list, or the parts of one value that is separated by commas or spaces."""
        listed = [value for name in names for value in values.get(name, ())]
        return listed if len(listed) != 1 else re.split(r"[,\s]+", listed[0])

    return FrontMatter(
        title=first("title"),
        description=first("description", "summary"),
        tags=normalize_tags(words("tags", "tag", "keywords")),
        aliases=tuple(dict.fromkeys((*values.get("aliases", ()), *values.get("alias", ())))),
        date=first("date", "created", "updated"),
        line_count=line_count,
    )


def normalize_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags without `#`, in lower case, without duplicates."""
    return tuple(dict.fromkeys(tag for raw in tags if (tag := raw.strip().lstrip("#").casefold())))


def _read_values(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each key, by its lower-case name."""
    values: dict[str, list[str]] = {}
    items: list[str] = []
    for line in lines:
        if (item := _ITEM.match(line)) is not None:
            _add_value(items, item[1])
        elif (found := _KEY.match(line)) is not None:
            items = values.setdefault(found[1].strip().lower(), [])
            _add_values(items, found[2] or "")
    return {name: found for name, found in values.items() if found}


def _add_values(items: list[str], written: str) -> None:
    """Parse `value`, `"value"` or `[value, value]`."""
    written = written.strip()
    if written.startswith("["):
        inner = written[1:].rpartition("]")[0]
        while inner.strip():
            quoted = _QUOTED.match(inner)
            end = quoted.end() if quoted is not None else 0
            head, _, rest = inner[end:].partition(",")
            _add_value(items, inner[:end] + head)
            inner = rest
    elif written not in ("|", ">", "|-", ">-", "{}", "~", "null"):
        _add_value(items, written)


def _add_value(items: list[str], written: str) -> None:
    if (quoted := _QUOTED.match(written)) is not None:
        inner = quoted[1][1:-1]
        plain = inner.replace("''", "'") if quoted[1][0] == "'" else re.sub(r"\\(.)", r"\1", inner)
    else:
        plain = re.split(r"(?:^|\s)#", written, maxsplit=1)[0] if " #" in written else written
    value = " ".join(plain.split())[:MAX_VALUE_LENGTH]
    if value and len(items) < MAX_FRONT_ITEMS:
        items.append(value)


MAX_LINE_LENGTH: Final = 4000  # longer lines are not searched for links and tags
MAX_HEADING_LENGTH: Final = 200
MAX_REFERENCES: Final = 2000
MAX_TAGS: Final = 100
HEADING_SEPARATOR: Final = " › "

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})\s*$")
_CODE = re.compile(r"`[^`\n]{1,500}`")
_NAME_LINK_PATTERN = re.compile(r"\[\[([^\[\]|#\n]{1,200})(?:#[^\[\]|\n]{0,200})?(?:\|[^\[\]\n]{0,200})?\]\]")
_PATH_LINK_PATTERN = re.compile(r"\]\(\s{0,3}(?:<([^<>\n]{1,500})>|([^()<>\s]{1,500}))")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}:")
_TAG = re.compile(r"(?<![\w/#&.\-(])#([^\W\d_][\w/-]{0,60})")


def parse_markdown(path: str, text: str, name: str) -> ParsedNote:
    """Parse a Markdown note. `name` is its title if it has none."""
    lines = text.split("\n")
    front = FrontMatter.from_lines(lines)
    found = _MarkdownFindings()
    sections = list(_split_sections(lines, front.line_count, found))
    first = found.headings[0] if found.headings and found.headings[0].level == 1 else None
    title = front.title or (first.text if first is not None else "") or name
    passages = islice(_build_markdown_passages(path, title, sections), MAX_PASSAGES)
    return ParsedNote(
        title=title,
        front=front,
        tags=normalize_tags((*front.tags, *found.tags[:MAX_TAGS])),
        headings=tuple(found.headings),
        references=tuple(found.references[:MAX_REFERENCES]),
        passages=tuple(passages),
        line_count=len(lines),
    )


@dataclass(slots=True)
class _MarkdownFindings:
    """Links, tags and headings found while parsing."""

    headings: list[NoteHeading] = field(default_factory=list[NoteHeading])
    references: list[NoteReference] = field(default_factory=list[NoteReference])
    tags: list[str] = field(default_factory=list[str])

    def scan_line(self, number: int, line: str) -> None:
        """Collect the links and tags of a line that is no code."""
        line = _CODE.sub(" ", line[:MAX_LINE_LENGTH])
        for match in _NAME_LINK_PATTERN.finditer(line):
            self.references.append(NoteReference(target=match[1].strip(), line=number, by_name=True))
        for match in _PATH_LINK_PATTERN.finditer(line):
            target = unquote((match[1] or match[2]).partition("#")[0])
            if target and not _SCHEME.match(target):
                self.references.append(NoteReference(target=target, line=number, by_name=False))
        self.tags += _TAG.findall(line)


@frozen(kw_only=False)
class _MarkdownSection:
    """The text under one heading, up to the next heading of any level."""

    heading: NoteHeading | None
    blocks: tuple[TextBlock, ...]


def _split_sections(lines: Sequence[str], start: int, found: _MarkdownFindings) -> Iterator[_MarkdownSection]:
    heading: NoteHeading | None = None
    blocks: list[TextBlock] = []
    held: list[str] = []  # lines of the current paragraph
    place = start

    def end_paragraph(before: int) -> None:
        """End the paragraph before line `before`."""
        blocks.extend(split_paragraphs(held, before - len(held)))
        held.clear()

    while place < len(lines):
        line, number = lines[place], place + 1
        if (fence := _FENCE.match(line)) is not None:
            end_paragraph(number)
            end = _find_code_end(lines, place, fence[1])
            blocks.append(TextBlock(number, end, "\n".join(lines[place:end])))
            place = end
            continue
        if (new_heading := _read_heading(line, number, held)) is not None:
            if new_heading.line != number:
                held.pop()  # the words above the underline are the heading
            end_paragraph(new_heading.line)
            yield _MarkdownSection(heading, tuple(blocks))
            heading, blocks = new_heading, []
            found.headings.append(new_heading)
        else:
            found.scan_line(number, line)
            held.append(line)
        place += 1
    end_paragraph(len(lines) + 1)
    yield _MarkdownSection(heading, tuple(blocks))


def _read_heading(line: str, number: int, held: Sequence[str]) -> NoteHeading | None:
    """Parse `# words`, or words underlined with `=` or `-`."""
    if (marks := _HEADING.match(line)) is not None:
        return NoteHeading(level=len(marks[1]), text=_strip_marks(line[marks.end() :]), line=number)
    if not held or not held[-1].strip() or (len(held) > 1 and held[-2].strip()):
        return None  # an underline has exactly one line above it
    if (under := _UNDERLINE.match(line[:MAX_LINE_LENGTH])) is not None:
        return NoteHeading(level=1 if under[1][0] == "=" else 2, text=_strip_marks(held[-1]), line=number - 1)
    return None


def _strip_marks(words: str) -> str:
    words = words.strip()
    closed = words.rstrip("#")
    words = closed if closed != words and closed.endswith((" ", "\t")) else words
    return " ".join(words.split())[:MAX_HEADING_LENGTH]


def _find_code_end(lines: Sequence[str], place: int, fence: str) -> int:
    """Return the number of the last line of the code block at index `place`, or of the note if it is open."""
    for at in range(place + 1, len(lines)):
        match = _FENCE.match(lines[at])
        if match is not None and match[1].startswith(fence) and not lines[at].strip(" \t`~"):
            return at + 1
    return len(lines)


def _build_markdown_passages(
    path: str, title: str, sections: Sequence[_MarkdownSection]
) -> Iterator[TextPassage]:
    above: dict[int, str] = {}
    for section in sections:
        if section.heading is not None:
            level = section.heading.level
            above = {other: words for other, words in above.items() if other < level}
            above[level] = section.heading.text
        under = [words for words in above.values() if words and words != title]
        yield from pack_passages(path, HEADING_SEPARATOR.join((title, *under)), section.blocks)


_PLAIN_UNDERLINE = re.compile(r"([=\-~^\"'`#*+_.:])\1{2,200}\s*$")
MAX_UNDERLINED_LENGTH: Final = 120


def parse_plain(path: str, text: str, name: str) -> ParsedNote:
    """Parse a text file. Its title is its file name."""
    lines = text.split("\n")
    headings = tuple(_find_headings(lines))
    passages = tuple(islice(_build_plain_passages(path, name, lines, headings), MAX_PASSAGES))
    return ParsedNote(title=name, headings=headings, passages=passages, line_count=len(lines))


def _find_headings(lines: Sequence[str]) -> Iterator[NoteHeading]:
    """Yield headings as in reStructuredText: the first kind of underline is the highest level, and so on."""
    levels: dict[str, int] = {}
    for place in range(1, len(lines)):
        words = lines[place - 1].rstrip()
        under = _PLAIN_UNDERLINE.match(lines[place][:MAX_UNDERLINED_LENGTH])
        alone = (
            place < 2
            or not lines[place - 2].strip()
            or _PLAIN_UNDERLINE.match(lines[place - 2][:MAX_UNDERLINED_LENGTH])
        )
        if under is None or not alone or not any(map(str.isalnum, words)) or words[:1].isspace():
            continue
        if len(lines[place].rstrip()) >= min(len(words), MAX_UNDERLINED_LENGTH):
            level = levels.setdefault(under[1], len(levels) + 1)
            yield NoteHeading(level=level, text=words.strip()[:MAX_HEADING_LENGTH], line=place)


def _build_plain_passages(
    path: str, title: str, lines: Sequence[str], headings: Sequence[NoteHeading]
) -> Iterator[TextPassage]:
    begin = lines[: headings[0].line - 1 if headings else len(lines)]
    yield from pack_passages(path, title, split_paragraphs(begin))
    above: dict[int, str] = {}
    ends = [heading.line - 1 for heading in headings[1:]] + [len(lines)]
    for heading, end in zip(headings, ends[: len(headings)], strict=True):
        above = {level: words for level, words in above.items() if level < heading.level}
        above[heading.level] = heading.text
        start = heading.line + 1  # after the underline
        words = HEADING_SEPARATOR.join((title, *above.values()))
        yield from pack_passages(path, words, split_paragraphs(lines[start:end], start + 1))


PDF_TIMEOUT_S: Final = 60.0  # for one file
# Needed to find Python; nothing else is passed on.
_PASSED_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH")
_PROGRAM: Final = Path(__file__).with_name("pdf_program.py")


@frozen
class PdfDocument:
    """The text of a PDF. There may be both pages and a problem."""

    pages: tuple[str, ...] = ()
    title: str = ""
    problem: str = ""


class PdfReader:
    """Reads PDF files one after another, each in a separate process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._closed = False

    def read(self, handle: int, *, seconds: float = PDF_TIMEOUT_S) -> PdfDocument:
        """Return the text of an open file. Never raises because of its content."""
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
            output, _ = process.communicate(timeout=seconds)
            late = False
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            late = True
        finally:
            self._running = None
        document = _parse_document(output)
        if late:
            return replace(document, problem=f"reading it took longer than {seconds:g} s")
        if process.returncode != 0 and not document.problem:
            return replace(document, problem="it is broken: reading it ended the reader")
        if not document.problem and not any(page.strip() for page in document.pages):
            return replace(document, problem="it holds no text: it may be a scan")
        return document

    def close(self) -> None:
        """End the running process and start no other."""
        with self._lock:
            self._closed = True
            if (running := self._running) is not None:
                running.kill()


def _parse_document(output: bytes) -> PdfDocument:
    pages: list[str] = []
    title = problem = ""
    for text in output.splitlines():
        try:
            line = cast("Mapping[str, Any]", orjson.loads(text))
        except orjson.JSONDecodeError:  # cut because the process was ended
            break
        if "page" in line:
            pages.append(str(line["page"]))
        title = str(line.get("title", title))
        problem = str(line.get("problem", problem))
    return PdfDocument(pages=tuple(pages), title=" ".join(title.split()), problem=problem)


def build_pdf_passages(path: str, title: str, pages: Iterable[str]) -> tuple[TextPassage, ...]:
    """Return the passages of a document, each with its page."""
    passages = (
        TextPassage(source=path, heading=title, text=passage.text, page=number)
        for number, text in enumerate(pages, start=1)
        for passage in pack_passages(path, title, split_paragraphs(text.split("\n")))
    )
    return tuple(islice(passages, MAX_PASSAGES))
