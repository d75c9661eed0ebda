"""What a key may not do is not offered by the pages, and what it may works with its session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from fingerpost.records import Right
from fingerpost.surfaces.http.local_callers import build_sign_in_url, create_ticket
from tests.kit.browser import ConsoleServer, run_module_server, visit
from tests.requirements import proves

ARGUMENTS = {"path": "hello.txt", "content": "Hello"}
REFUSED = "status of 40[13]"  # what a browser says of an answer that is a refusal


@pytest.fixture(scope="module")
def locked_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ConsoleServer, dict[str, str]]]:
    """A server that requires keys: one that watches, and one of an agent that also approves; its call
    waits.
    """
    folder: Path = tmp_path_factory.mktemp("locked")
    rights = {"guard": (Right.WATCH,), "agent": (Right.USE, Right.APPROVE)}
    with run_module_server(folder, gateway={"require_key": True}) as server:
        keys = {
            name: server.do(server.router.store.keys.add, name, rights=may)[1] for name, may in rights.items()
        }
        server.do(server.router.call, "files/write_file", ARGUMENTS, caller="agent")
        yield server, keys


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Sign in").click()


@proves("V3", "V4", "I3")
def test_a_key_that_watches_sees_no_button_it_may_not_press(
    browser: Browser, locked_server: tuple[ConsoleServer, dict[str, str]]
):
    server, keys = locked_server
    with visit(browser, server, "#/approvals", expected=REFUSED) as page:
        sign_in(page, keys["guard"])
        card = page.get_by_role("article")
        expect(card).to_contain_text("your key does not have the right “approve”")
        expect(card.get_by_role("button")).to_have_count(0)
        page.keyboard.press("a")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_role("link", name="Servers", exact=True).click()
        page.get_by_role("table").get_by_role("link", name="files").click()
        expect(page.get_by_role("link", name="write_file")).to_be_visible()
        expect(page.get_by_role("button", name="Reconnect")).to_have_count(0)
        page.get_by_role("link", name="write_file").click()
        expect(page.get_by_role("heading", name="Properties")).to_be_visible()
        expect(page.get_by_role("button", name="Switch this tool off…")).to_have_count(0)


@proves("V3", "I3", "I5")
def test_a_caller_cannot_approve_its_own_call_but_may_withdraw_it(
    browser: Browser, locked_server: tuple[ConsoleServer, dict[str, str]]
):
    server, keys = locked_server
    with visit(browser, server, "#/approvals", expected=REFUSED) as page:
        sign_in(page, keys["agent"])
        card = page.get_by_role("article")
        expect(card).to_contain_text("You asked for this call yourself")
        expect(card.get_by_role("button", name="Approve once")).to_have_count(0)
        card.get_by_role("button", name="Reject…").click()
        page.get_by_role("dialog").get_by_role("button", name="Reject").click()
        expect(card.get_by_role("status")).to_contain_text("Rejected by agent")


@proves("X2", "V3")
def test_where_no_key_is_needed_a_link_signs_in_to_decide_and_does_so_once(
    browser: Browser, server: ConsoleServer
):
    server.do(server.router.call, "files/write_file", ARGUMENTS, caller="local")
    link = build_sign_in_url(server.address, server.do(create_ticket, server.router.store))
    with visit(browser, server, "#/approvals", signed_in=False) as page:
        card = page.get_by_role("article")
        expect(card).to_contain_text("To decide, sign in: run fingerpost console")
        expect(card.get_by_role("button")).to_have_count(0)
        page.goto(link)
        expect(page.get_by_text("You are signed in")).to_be_visible()
        expect(card.get_by_role("button", name="Approve once")).to_be_visible()
        assert page.evaluate("location.hash") == "#/approvals"
        page.get_by_role("button", name="Sign out").click()
        expect(card).to_contain_text("To decide, sign in")
    with visit(browser, server, f"#{link.partition('/#')[2]}", expected=REFUSED, signed_in=False) as page:
        expect(page.get_by_text("This link was used")).to_be_visible()
        expect(page.get_by_role("article")).to_contain_text("To decide, sign in")
