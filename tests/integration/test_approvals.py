"""An approval asked in a chat, given in the browser; also with the program killed in between."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from openai import APIConnectionError
from playwright.sync_api import Browser, Page, expect

from tests.integration.program import Program, file_server, serving
from tests.integration.scripted_upstream import Call, last, offered, scripted_upstream, words
from tests.integration.talking import streamed, text_of, user, whole
from tests.kit.browser import visit
from tests.requirements import proves

pytestmark = pytest.mark.xdist_group("together")

WRITTEN = "I have written it down."
GONE = "ERR_|Failed to fetch|network error"  # what a browser says while the program is dead


def script(body: dict[str, Any]) -> str | Call:
    """Writes the file it is asked for, then says so."""
    path = re.search(r'"(/\S+)"', words(body))
    if path is not None and last(body)["role"] == "user" and "files__write_file" in offered(body):
        return Call("call_write", "files__write_file", {"path": path[1], "content": "Hello"})
    return WRITTEN if last(body)["role"] == "tool" else "There is nothing to do."


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("approvals")
    with (
        scripted_upstream(script) as upstream,
        serving(folder, {"files": file_server(folder)}, upstream.environment()) as running,
    ):
        yield running


def asked(program: Program, name: str) -> str:
    return f'Write the file "{program.workspace / name}" with a greeting'


def approve(page: Page, name: str) -> None:
    """What a person does: read the call that waits, and say yes."""
    page.get_by_role("list", name="Approvals").get_by_role("link", name=name).click()
    card = page.get_by_role("article")
    expect(card).to_contain_text(name)
    card.get_by_role("button", name="Approve once").click()
    expect(card.get_by_role("status")).to_contain_text("Approved by")


@proves("O7", "V3")
def test_asked_in_a_chat_approved_in_the_browser_answered_in_the_same_completion(
    browser: Browser, program: Program
):
    before = len(program.writes())
    with (
        program.openai() as client,
        ThreadPoolExecutor() as threads,
        visit(browser, program.address, program.sign_in()) as page,
    ):
        answer = threads.submit(whole, client, [user(asked(program, "whole.txt"))])
        approve(page, "whole.txt")
        said = answer.result()
        assert text_of(said).startswith(WRITTEN)
        assert said["fingerpost"]["outcome"] == "answered"
        assert said["fingerpost"]["tools_used"] == ["files/write_file"]

        pieces: Future[str] = threads.submit(streamed, client, [user(asked(program, "stream.txt"))])
        approve(page, "stream.txt")
        assert pieces.result().startswith(WRITTEN)
    written = [program.workspace / name for name in ("whole.txt", "stream.txt")]
    assert [call["path"] for call in program.writes()[before:]] == [str(path) for path in written]
    assert [path.read_text() for path in written] == ["Hello", "Hello"]


@proves("O7", "V3")
def test_the_program_is_killed_while_a_person_thinks(browser: Browser, program: Program):
    """Once while it holds the request, once after it has said what waits; nobody says good-bye."""
    before = len(program.writes())
    first = user(asked(program, "by-id.txt"))
    with visit(browser, program.address, program.sign_in(), expected=GONE) as page:
        with program.openai() as client, ThreadPoolExecutor() as threads:
            held = threads.submit(whole, client, [first])
            expect(page.get_by_role("article")).to_contain_text("by-id.txt")
            pending = program.get("/api/approvals")["items"][0]["pending_id"]
            program.kill()
            assert isinstance(held.exception(), APIConnectionError)
        program.start(FINGERPOST_COMPLETIONS__APPROVAL_SECONDS="0")
        approve(page, "by-id.txt")
        with program.openai() as client:
            said = whole(client, [first], extra_body={"fingerpost": {"resume": pending}})
            assert text_of(said).startswith(WRITTEN)
            assert said["fingerpost"]["outcome"] == "answered"

            talk = [user(asked(program, "next.txt"))]
            waits = whole(client, talk)
            assert waits["fingerpost"]["outcome"] == "waiting"
            program.kill()
            program.start()
            approve(page, "next.txt")
            talk += [waits["choices"][0]["message"], user("Is it done?")]
            said = whole(client, talk)
            assert text_of(said).startswith(WRITTEN)
            assert said["fingerpost"]["packet_id"] == waits["fingerpost"]["packet_id"]
    paths = [program.workspace / name for name in ("by-id.txt", "next.txt")]
    assert [path.read_text() for path in paths] == ["Hello", "Hello"]
    assert [call["path"] for call in program.writes()[before:]] == [str(path) for path in paths]
