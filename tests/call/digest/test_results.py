"""The full result stays within reach: page by page, part by part, through the command too."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.call.digest import ResultStore, build_handle, count_tokens
from fingerpost.call.digest.results import (
    PageStarts,
    compute_min_page_length,
    count_pages,
    find_page_end,
    find_page_starts,
)
from fingerpost.records import JsonObject
from fingerpost.store import Store
from tests.kit.command_line import CommandLine
from tests.requirements import proves

PICTURE = bytes(range(256)) * 20
RESULT: JsonObject = {
    "content": [
        {"type": "text", "text": "\n".join(f"line {number} of the whole" for number in range(600))},
        {"type": "image", "data": base64.b64encode(PICTURE).decode(), "mimeType": "image/png"},
    ]
}


def whole() -> str:
    return "\n".join(f"line {number} of the whole" for number in range(600)) + "\n[image/png, 5 KB, part 2]"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@proves("D6", "F6")
async def test_all_pages_together_are_the_whole_result(url: str) -> None:
    async with Store.open(url) as store:
        results = ResultStore(store.cache)
        handle = await results.keep("call_1", RESULT)
        first = await results.read_page(handle, tokens=500)
        assert first is not None
        assert first.pages > 5
        assert first.references == ("image/png, 5 KB, part 2",)
        read = ""
        for number in range(1, first.pages + 1):
            page = await results.read_page(handle, page=number, tokens=500)
            assert page is not None
            assert page.tokens == count_tokens(page.text) <= 500
            assert page.pages == first.pages
            read += page.text
        assert read == whole()
        assert await results.read_page(handle, page=first.pages + 1, tokens=500) is None


async def test_a_part_comes_back_byte_for_byte(url: str) -> None:
    async with Store.open(url) as store:
        results = ResultStore(store.cache)
        handle = await results.keep("call_1", RESULT)
        assert await results.read_part(handle, 2) == ("image/png", PICTURE)
        assert await results.read_part(handle, 3) is None
        assert await results.read_part(handle, 0) is None


async def test_an_unknown_or_expired_handle_finds_nothing(url: str) -> None:
    async with Store.open(url) as store:
        results = ResultStore(store.cache, keep_seconds=0.01)
        assert await results.read_page("res_nothing") is None
        handle = await results.keep("call_1", RESULT)
        await anyio.sleep(0.05)
        assert await results.read_page(handle) is None
        assert await results.read_part(handle, 1) is None


async def test_an_empty_result_has_one_empty_page(url: str) -> None:
    async with Store.open(url) as store:
        results = ResultStore(store.cache)
        page = await results.read_page(await results.keep("call_1", {"content": []}))
        assert page is not None
        assert (page.text, page.page, page.pages) == ("", 1, 1)
        assert await results.read_page(page.handle, page=2) is None


@proves("D6")
@pytest.mark.parametrize("number", [-1, 0, 10**9, 10**18])
async def test_a_page_that_is_not_there_is_none_however_far_away(url: str, number: int) -> None:
    async with Store.open(url) as store:
        results = ResultStore(store.cache)
        handle = await results.keep("call_1", RESULT)
        assert await results.read_page(handle, page=number) is None


def test_the_same_call_has_the_same_handle_and_another_another() -> None:
    assert build_handle("call_1") == build_handle("call_1") != build_handle("call_2")
    assert len(build_handle("call_1")) == 17


DEAR = "\u115f\U000e0041\u3164\u200b\x00\n"  # characters that cost most, and where pages may end early


@pytest.mark.slow
@given(
    st.text(max_size=400) | st.text(alphabet="ab \n", max_size=400) | st.text(alphabet=DEAR, max_size=400),
    st.integers(50, 90),
)
@settings(deadline=None, max_examples=90)
def test_pages_cover_any_text_without_overlap(text: str, tokens: int) -> None:
    start = 0
    while start < len(text):
        end = find_page_end(text, start, tokens)
        assert end - start >= compute_min_page_length(tokens) or end == len(text)
        assert count_tokens(text[start:end]) <= tokens
        start = end


TEXTS = st.text(alphabet="ab \n", max_size=2000) | st.text(max_size=600)


@proves("D6")
@given(TEXTS, st.lists(st.integers(1, 12), min_size=1, max_size=6))
@settings(deadline=None, max_examples=60)
def test_a_page_is_the_same_whatever_was_read_before_it(text: str, numbers: list[int]) -> None:
    known: PageStarts = (0,)
    for number in numbers:
        afresh, onward = find_page_starts(text, number, 50, (0,)), find_page_starts(text, number, 50, known)
        assert (afresh is None) == (onward is None)
        if afresh is not None and onward is not None:
            assert afresh[: number + 1] == onward[: number + 1]
            pages, known = count_pages(text, number, 50, onward)
            assert pages == count_pages(text, number, 50, afresh)[0]


@proves("D6")
async def test_a_result_that_is_kept_again_is_paged_again(url: str) -> None:
    async with Store.open(url) as store:
        results = ResultStore(store.cache)
        for word in ("first", "second, and longer"):
            text = "\n".join(f"{word} {number}" for number in range(400))
            handle = await results.keep("call_1", {"content": [{"type": "text", "text": text}]})
            first = await results.read_page(handle, tokens=500)
            assert first is not None
            pages = [
                await results.read_page(handle, page=number + 1, tokens=500) for number in range(first.pages)
            ]
            assert "".join(page.text for page in pages if page is not None) == text


def keep(person: CommandLine) -> str:
    async def work() -> str:
        async with Store.open(f"sqlite:///{person.home}/store.db") as store:
            return await ResultStore(store.cache).keep("call_1", RESULT)

    return anyio.run(work)


@pytest.fixture
def person(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.mark.process
@proves("D6", "H19")
def test_the_command_shows_pages_and_writes_parts(person: CommandLine) -> None:
    handle = keep(person)
    first = person.runs("result", handle, "--tokens", "300")
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("line 0 of the whole\n")
    assert f"next: fingerpost result {handle} --page 2" in first.stderr
    second = person.reads("result", handle, "--tokens", "300", "--page", "2")
    assert second["page"] == 2
    assert second["text"].startswith("line ")
    file = person.home / "picture.png"
    assert person.runs("result", handle, "--part", "2", "--output", str(file)).returncode == 0
    assert file.read_bytes() == PICTURE


@pytest.mark.process
def test_the_command_says_so_when_there_is_nothing(person: CommandLine) -> None:
    missing = person.runs("result", "res_nothing")
    assert missing.returncode == 1
    assert "nothing found" in missing.stderr
    assert person.runs("result", "res_nothing", "--part", "2").returncode == 2
    assert json.dumps("Traceback") not in missing.stderr
