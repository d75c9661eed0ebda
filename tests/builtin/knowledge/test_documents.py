"""Notes taken apart: front matter, headings, code, links; whatever stands in a file."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from fingerpost.builtin.knowledge.documents import (
    MAX_PASSAGE_LENGTH,
    FrontMatter,
    parse_markdown,
    parse_plain,
)
from tests.requirements import proves

PIECES = st.sampled_from(
    [
        "---", "...", "title: x", "tags: [a, b", "  - item", "# one", "## two", "=====", "-----", "```",
        "~~~~", "    code", "[[Link|alias]]", "[a](b.md)", "![[x]]", "words " * 30, "x" * 1600, "", " ",
        "\t", "- [ ] do",
        "#tag", "| a | b |", "> quote", "\u2028odd", "::::", "ab\n***",
    ]
)  # fmt: skip
LINES = st.lists(PIECES | st.text(max_size=40), max_size=40)


@proves("U6")
@given(lines=LINES)
def test_every_line_of_a_note_is_in_a_passage_or_a_heading_and_where_it_says(lines: list[str]):
    text = "\n".join(lines)
    split = text.split("\n")
    for parse in (parse_markdown, parse_plain):
        parsed = parse("note.md", text, "note")
        headings = {heading.line for heading in parsed.headings}
        covered: set[int] = set()
        for passage in parsed.passages:
            assert len(passage.text) <= MAX_PASSAGE_LENGTH + 700
            assert 1 <= passage.first_line <= passage.last_line <= len(split)
            covered.update(range(passage.first_line, passage.last_line + 1))
            passage_text = "".join("".join(split[passage.first_line - 1 : passage.last_line]).split())
            assert "".join(passage.text.split()) in passage_text
        for number, line in enumerate(split[parsed.front.line_count :], start=parsed.front.line_count + 1):
            if line.strip() and number not in covered:
                is_underline = number - 1 in headings and len(set(line.strip())) == 1
                assert number in headings or is_underline, (number, line)


VALUES = st.text(string.ascii_letters + string.digits + " .,:'äß[]", min_size=1, max_size=30).map(
    lambda value: " ".join(value.split())
).filter(bool)  # fmt: skip


@proves("U6")
@given(title=VALUES, tags=st.lists(VALUES, min_size=2, max_size=4), quoted=st.booleans(), block=st.booleans())
def test_front_matter_comes_back_as_it_was_written(title: str, tags: list[str], quoted: bool, block: bool):
    def write_value(value: str) -> str:
        return '"' + value.replace('"', '\\"') + '"'

    lines = ["---", f"title: {write_value(title)}"]
    if block:
        lines += ["tags:", *(f"  - {write_value(tag)}" for tag in tags)]
    else:
        lines.append(f"tags: [{', '.join(map(write_value, tags))}]")
    lines += ["date: 2026-01-31  # a comment", "nested:", "  deeper: ignored", "---", "text"]
    front = FrontMatter.from_lines(lines)
    assert front.title == title
    assert front.tags == tuple(dict.fromkeys(tag.casefold() for tag in tags))
    assert front.date == "2026-01-31"
    assert front.line_count == len(lines) - 1


@given(lines=LINES)
def test_front_matter_never_fails_and_ends_within_the_note(lines: list[str]):
    front = FrontMatter.from_lines("\n".join(lines).split("\n"))
    assert 0 <= front.line_count <= len("\n".join(lines).split("\n"))


def test_front_matter_that_does_not_end_is_text():
    assert FrontMatter.from_lines(["---", "title: x", "text"]) == FrontMatter()
    assert "title: x" in parse_markdown("a.md", "---\ntitle: x\n\ntext", "a").passages[0].text


def test_tags_in_one_line_are_several():
    assert FrontMatter.from_lines(["---", "tags: garden, Food #later", "---"]).tags == ("garden", "food")


@proves("U6")
def test_code_is_kept_whole_and_holds_neither_headings_nor_links():
    code = "```sh\n# no heading\n\n[[no link]] #notag\n```"
    parsed = parse_markdown("a.md", f"# A\n\nbefore [[yes]]\n\n{code}\n\nafter `[[no]]`\n", "a")
    assert [heading.text for heading in parsed.headings] == ["A"]
    assert [reference.target for reference in parsed.references] == ["yes"]
    assert parsed.tags == ()
    assert code in parsed.passages[0].text


def test_links_to_the_web_and_to_places_in_the_same_note_lead_to_no_note():
    text = (
        "[a](https://x.example/b.md) [b](#c) [d](mailto:x@y.example) [e](other%20note.md#f) ![g](<p q.png>)"
    )
    found = parse_markdown("a.md", text, "a").references
    assert [reference.target for reference in found] == ["other note.md", "p q.png"]


def test_headings_lead_to_a_passage():
    text = "# Title\n\n## Second\n\nunder second\n\n#### Fourth\n\nunder fourth\n\nUnderlined\n---\n\nlast\n"
    parsed = parse_markdown("a.md", text, "a")
    assert [(passage.heading, passage.text) for passage in parsed.passages] == [
        ("Title › Second", "under second"),
        ("Title › Second › Fourth", "under fourth"),
        ("Title › Underlined", "last"),
    ]
