"""The shell: sign-in, navigation, the notice when the server is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from fingerpost.records import Right
from tests.kit.browser import ConsoleServer, check_access, run_module_server, shoot, visit

PAGES = {
    "Ask": "k",
    "Approvals": "a",
    "Tools": "t",
    "Servers": "s",
    "Insight": "i",
    "Audit": "u",
    "Live": "l",
}


def test_every_page_is_one_link_or_two_keys_away(browser: Browser, server: ConsoleServer):
    with visit(browser, server) as page:
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        for name, key in PAGES.items():
            page.keyboard.press("g")
            page.keyboard.press(key)
            expect(page.get_by_role("link", name=name, exact=True)).to_have_attribute("aria-current", "page")
            expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()
            expect(page).to_have_title(re.compile(rf"{name} · Fingerpost$"))
        page.get_by_role("link", name="Ask", exact=True).click()
        expect(page.get_by_role("heading", level=1, name="Ask")).to_be_focused()
        expect(page.get_by_role("link", name="Docs")).to_have_attribute("href", "/docs/")
        page.goto(f"{server.address}/#/nonsense")
        expect(page.get_by_text("There is no such page")).to_be_visible()


def test_keys_are_listed_and_can_be_switched_off(browser: Browser, server: ConsoleServer):
    with visit(browser, server) as page:
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.keyboard.press("?")
        page.get_by_label("Use single-letter shortcuts").uncheck()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_skip_link_comes_first(browser: Browser, server: ConsoleServer):
    with visit(browser, server) as page:
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the page")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()


def test_colours_are_kept(browser: Browser, server: ConsoleServer):
    with visit(browser, server, scheme="dark") as page:
        page.get_by_role("button", name="Colours: system").click()
        page.reload()
        expect(page.get_by_role("button", name="Colours: light")).to_be_visible()
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"


def test_a_break_is_told_and_mended(browser: Browser, server: ConsoleServer):
    with visit(browser, server, "console/logo.svg", expected="ERR_FAILED|404") as page:
        page.route("**/api/live", lambda route: route.abort())
        page.goto(f"{server.address}/#/live")
        expect(page.get_by_text("Not connected.")).to_be_visible()
        page.unroute("**/api/live")
        expect(page.get_by_text("Not connected.")).to_have_count(0)


@pytest.fixture(scope="module")
def locked_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ConsoleServer, dict[str, str]]]:
    """A server that requires keys, and the keys by name."""
    folder = tmp_path_factory.mktemp("locked")
    with run_module_server(folder, gateway={"require_key": True}) as server:
        rights = {"guard": tuple(Right), "guest": (Right.USE,)}
        keys = {
            name: server.do(server.router.store.keys.add, name, rights=may)[1] for name, may in rights.items()
        }
        yield server, keys


def test_signing_in_and_out(browser: Browser, locked_server: tuple[ConsoleServer, dict[str, str]]):
    server, keys = locked_server
    with visit(browser, server, "#/ask", expected="401") as page:
        page.get_by_label("Key").fill("fp_nonsense")
        shoot(page, "signin")
        check_access(page)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("Unknown or revoked key")).to_be_visible()
        page.get_by_label("Key").fill(keys["guard"])
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="What time is it in Tokyo").click()
        expect(page.get_by_text("It is half past nine in Tokyo.")).to_be_visible()
        page.reload()
        expect(page.get_by_role("heading", level=1, name="Ask")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Key")).to_be_visible()


def test_a_key_that_may_only_use_sees_its_own(
    browser: Browser, locked_server: tuple[ConsoleServer, dict[str, str]]
):
    server, keys = locked_server
    server.ask("What time is it in Tokyo right now?", caller="somebody else")
    with visit(browser, server, "#/ask", expected="401") as page:
        page.get_by_label("Key").fill(keys["guest"])
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="hello", exact=True).click()
        expect(page.get_by_text("Hello. What can be done for you?")).to_be_visible()
        page.get_by_role("link", name="Live", exact=True).click()
        expect(page.locator(".line")).to_have_count(1)
        expect(page.locator(".line")).to_contain_text("hello")
