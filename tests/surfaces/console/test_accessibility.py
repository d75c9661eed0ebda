"""Approvals, Tools, Servers, Insight and Audit for everybody: both schemes, a narrow screen, axe."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from fingerpost import Server
from tests.kit.browser import (
    WIDE,
    ConsoleServer,
    both_schemes,
    check_access,
    create_example_model,
    example_servers,
    run_server,
    shoot,
    visit,
)
from tests.requirements import proves

# The place, and what has to be there before it is looked at.
PLACES = {
    "approvals": "Arguments",
    "tools": "Delete a file for good",
    "tools/strange/stir": "Stir the pot",
    "servers": "no-such-program-anywhere",
    "servers/broken": "What to do:",
    "insight": "Most used tools",
    "audit": "needs approval",
}


@pytest.fixture(scope="module")
def used_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    """Something of everything: requests, one in Hebrew that waits, a server that is down."""
    folder = tmp_path_factory.mktemp("lived-in")
    servers = [*example_servers(), Server.stdio("broken", ["no-such-program-anywhere"])]
    with run_server(folder, servers=servers, model=create_example_model()) as server:
        server.ask("What time is it in Tokyo right now?")
        server.do(server.router.call, "strange/stir", {"pot": "soup"})
        assert server.ask('Write the file "hello.txt" with the content "שלום"').outcome == "waiting"
        server.do(server.router.call, "files/write_file", {"path": "שיר.txt", "content": "שלום עולם"})
        yield server


@proves("V7")
def test_pages_can_be_used_by_everybody(browser: Browser, used_server: ConsoleServer):
    with visit(browser, used_server) as page:
        for scheme, width in both_schemes():
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 900})
            for place, shown in PLACES.items():
                if "/" in place and width < WIDE:
                    continue  # what it shares with its page is looked at there
                page.evaluate("place => { location.hash = '#/' + place }", place)
                if place == "approvals" and width < WIDE:
                    page.get_by_role("list", name="Approvals").get_by_role("link").first.click()
                    expect(page.get_by_role("button", name="Approve once")).to_be_visible()
                expect(page.get_by_role("main").get_by_text(shown).first).to_be_visible()
                check_access(page)
                shoot(page, f"{place.replace('/', '-')}-{scheme}-{width}")


@proves("V7")
def test_the_form_of_arguments_can_be_used_by_everybody(browser: Browser, used_server: ConsoleServer):
    with visit(browser, used_server, "#/approvals", width=360) as page:
        page.get_by_role("list", name="Approvals").get_by_role("link").first.click()
        page.get_by_role("button", name="Edit arguments…").click()
        expect(page.get_by_role("dialog").get_by_label("path")).to_be_visible()
        check_access(page)
        shoot(page, "approvals-edit-360")
