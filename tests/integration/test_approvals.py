"""An approval asked in a chat, given in the browser; also with the program killed in between."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from openai import APIConnectionError
from playwright.sync_api import Browser, Page, expect

from tests.integration.program import ServeProgram, file_server, run_program
from tests.integration.scripted_upstream import (
    UpstreamCall,
    get_last_user_text,
    last,
    list_offered,
    run_scripted_upstream,
)
from tests.integration.talking import read_stream, text_of, user, whole
from tests.kit.browser import visit
from tests.requirements import proves

WRITTEN = "I have written it down."
GONE = "ERR_|Failed to fetch|network error"  # what a browser says while the program is dead


def script(body: dict[str, Any]) -> str | UpstreamCall:
    """Writes the file it is asked for, then says so."""
    path = re.search(r'"(/\S+)"', get_last_user_text(body))
    if path is not None and last(body)["role"] == "user" and "files__write_file" in list_offered(body):
        return UpstreamCall("call_write", "files__write_file", {"path": path[1], "content": "Hello"})
    return WRITTEN if last(body)["role"] == "tool" else "There is nothing to do."


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProgram]:
    folder = tmp_path_factory.mktemp("approvals")
    with (
        run_scripted_upstream(script) as upstream,
        run_program(folder, {"files": file_server(folder)}, upstream.environment()) as running,
    ):
        yield running


def build_request(program: ServeProgram, name: str) -> str:
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
    browser: Browser, program: ServeProgram
):
    before = len(program.writes())
    with (
        program.openai() as client,
        ThreadPoolExecutor() as threads,
        visit(browser, program.address, program.sign_in()) as page,
    ):
        answer = threads.submit(whole, client, [user(build_request(program, "whole.txt"))])
        approve(page, "whole.txt")
        reply = answer.result()
        assert text_of(reply).startswith(WRITTEN)
        assert reply["fingerpost"]["outcome"] == "answered"
        assert reply["fingerpost"]["tools_used"] == ["files/write_file"]

        pieces: Future[str] = threads.submit(
            read_stream, client, [user(build_request(program, "stream.txt"))]
        )
        approve(page, "stream.txt")
        assert pieces.result().startswith(WRITTEN)
    written = [program.workspace / name for name in ("whole.txt", "stream.txt")]
    assert [call["path"] for call in program.writes()[before:]] == [str(path) for path in written]
    assert [path.read_text() for path in written] == ["Hello", "Hello"]


@proves("O7", "V3")
def test_the_program_is_killed_while_a_person_thinks(browser: Browser, program: ServeProgram):
    """Once while it holds the request, once after it has said what waits. It is killed by SIGKILL."""
    before = len(program.writes())
    first = user(build_request(program, "by-id.txt"))
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
            data = whole(client, [first], extra_body={"fingerpost": {"resume": pending}})
            assert text_of(data).startswith(WRITTEN)
            assert data["fingerpost"]["outcome"] == "answered"

            talk = [user(build_request(program, "next.txt"))]
            waits = whole(client, talk)
            assert waits["fingerpost"]["outcome"] == "waiting"
            program.kill()
            program.start()
            approve(page, "next.txt")
            talk += [waits["choices"][0]["message"], user("Is it done?")]
            data = whole(client, talk)
            assert text_of(data).startswith(WRITTEN)
            assert data["fingerpost"]["packet_id"] == waits["fingerpost"]["packet_id"]
    paths = [program.workspace / name for name in ("by-id.txt", "next.txt")]
    assert [path.read_text() for path in paths] == ["Hello", "Hello"]
    assert [call["path"] for call in program.writes()[before:]] == [str(path) for path in paths]
