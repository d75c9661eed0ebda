"""Live: lines as they come, and the journey of each."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from fingerpost.events import RouteEnded
from fingerpost.records import RouteOutcome
from tests.kit.browser import (
    HOSTILE,
    ConsoleServer,
    both_schemes,
    check_access,
    open_place,
    run_module_server,
    shoot,
    visit,
)
from tests.requirements import proves

TOKYO = "What time is it in Tokyo right now?"
HEBREW = "מה השעה עכשיו בטוקיו?"
WRITE = 'Write the file "hello.txt" with the content "Hello from Fingerpost"'
STIR = f"Please stir the pot {HOSTILE}"


@pytest.fixture(scope="module")
def used_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    """A server with some history."""
    with run_module_server(tmp_path_factory.mktemp("lived")) as server:
        for text in (TOKYO, 'Read the file "notes.md"', "hello", HEBREW, STIR, WRITE):
            server.ask(text, caller="dana")
        server.do(server.router.call, "time/get_current_time", {"timezone": "Nowhere"})
        yield server


@pytest.fixture(scope="module")
def page(browser: Browser, used_server: ConsoleServer) -> Iterator[Page]:
    """One visit for all tests of that server."""
    with visit(browser, used_server, expected="404.*/pkt_nobody") as opened:
        yield opened


def open_request(page: Page, text: str) -> None:
    page.locator(".line", has_text=text).click()
    expect(page.get_by_role("link", name="← All requests")).to_be_visible()


def test_nothing_yet_teaches(browser: Browser, server: ConsoleServer):
    with visit(browser, server, "#/live") as page:
        page.get_by_role("link", name="“What time is it in Tokyo right now?”").click()
        expect(page.get_by_label("Request")).to_have_value(TOKYO)


@proves("V1")
def test_a_line_opens_into_its_journey(page: Page, used_server: ConsoleServer):
    open_place(page, "#/live")
    open_request(page, TOKYO)
    steps = page.locator(".steps")
    for words in (
        "Tool needed? yes",
        "2 of 6 tools considered",
        "scored 0.02, clearly less than the best",
        "The request asks for the present time in a city",
        "1 alternative",
        "Confidence",
        "0.70 is enough",
        "Arguments, repaired",
        "It only reads: allowed by default.",
        "allowed by policy",
        "nothing cut",
    ):
        expect(steps).to_contain_text(words)
    expect(page.locator(".answer")).to_contain_text("It is half past nine in Tokyo.")
    expect(page.locator(".diff-line.removed")).to_contain_text("time_zone")
    expect(page.locator(".diff-line.added")).to_contain_text("timezone")
    expect(page.locator(".lane-bar.bar-attempt")).to_be_visible()
    page.locator(".candidate summary").first.click()
    expect(page.locator(".candidate").first).to_contain_text("words")
    page.get_by_role("tab", name="Events").click()
    expect(page.locator(".events > li").first).to_contain_text("packet_received")
    page.go_back()
    expect(page.locator(".line")).to_have_count(7)


@proves("V1")
def test_a_call_that_failed_says_why(page: Page, used_server: ConsoleServer):
    open_place(page, "#/live")
    page.get_by_role("button", name="failed 1").click()
    expect(page.locator(".line")).to_have_count(1)
    page.locator(".line").click()
    expect(page.locator(".attempts")).to_contain_text("execution failed")


def test_lines_can_be_searched(page: Page, used_server: ConsoleServer):
    open_place(page, "#/live")
    expect(page.locator(".line")).to_have_count(7)
    page.keyboard.press("/")
    page.keyboard.type("tokyo")
    expect(page.locator(".line")).to_have_count(1)
    page.keyboard.type(" nowhere at all")
    expect(page.get_by_role("heading", name="No matches")).to_be_visible()
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="calls").click()
    expect(page.locator(".line")).to_have_count(1)
    page.get_by_role("button", name="calls").click()
    page.get_by_role("button", name="Show older requests").click()
    expect(page.get_by_role("button", name="Show older requests")).to_have_count(0)
    expect(page.locator(".line")).to_have_count(7)


def test_hostile_words_are_only_words(page: Page, used_server: ConsoleServer):
    open_place(page, "#/live")
    open_request(page, "stir the pot")
    shown = page.locator(".asked-text").inner_text()
    assert "<img src=x onerror=" in shown
    assert "<script>" in shown
    assert "␛[31mred" in shown
    assert "⟨U+202E⟩reversed" in shown
    assert "⟨U+009B⟩csi" in shown
    assert not re.search("[\x1b\u202e\x9b]", page.locator("body").inner_text())
    assert page.locator("main img, main script").count() == 0
    page.get_by_role("link", name="← All requests").click()
    open_request(page, "notes.md")
    page.locator(".step-call").get_by_text("Result", exact=True).click()
    expect(page.locator(".result-text")).to_contain_text("<script>")
    assert page.locator("main img, main script").count() == 0


def test_hebrew_runs_from_right_to_left(page: Page, used_server: ConsoleServer):
    open_place(page, "#/live")
    line = page.locator(".line", has_text="טוקיו")
    shown = line.locator("bdi")
    assert shown.evaluate("element => getComputedStyle(element).direction") == "rtl"
    neighbour = page.locator(".line", has_text=TOKYO).locator("bdi")
    assert neighbour.evaluate("element => getComputedStyle(element).direction") == "ltr"
    line.click()
    asked = page.locator(".asked-text")
    assert asked.evaluate("element => getComputedStyle(element).direction") == "rtl"


def test_it_can_be_read_by_everybody(page: Page):
    for scheme, width in reversed(both_schemes()):  # the next test has a wide window
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        open_place(page, "#/live")
        expect(page.locator(".line")).to_have_count(7)
        check_access(page)
        shoot(page, f"live-{scheme}-{width}")
        open_request(page, TOKYO)
        expect(page.locator(".answer")).to_contain_text("It is half past nine")
        check_access(page)
        shoot(page, f"journey-{scheme}-{width}")


def test_a_journey_is_shown_while_it_happens(page: Page, used_server: ConsoleServer):
    route = used_server.ask(WRITE.replace("hello", "other"), caller="dana")
    assert route.pending is not None
    open_place(page, f"#/live/{route.packet_id}")
    expect(page.locator(".asks")).to_contain_text("waiting")
    answer = page.locator(".answer")
    expect(answer.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    expect(answer.get_by_role("button", name="Reject", exact=True)).to_be_visible()
    expect(page.locator(".nav-count")).to_have_text("2")
    used_server.do(used_server.router.resume, route, route.pending.approve(by="erin"))
    expect(page.locator(".answer")).to_contain_text("Done.")
    expect(page.locator(".steps")).to_contain_text("erin")
    expect(page.locator(".nav-count")).to_have_text("1")
    expect(page.locator(".lane-bar.bar-person")).to_be_visible()
    left = used_server.ask("hello once more", caller="dana")  # as if its process had been killed
    ended = RouteEnded(packet_id=left.packet_id, outcome=RouteOutcome.INTERRUPTED, milliseconds=0.0)
    used_server.do(used_server.router.store.journal.append, ended)
    page.goto(f"{used_server.address}/#/live/{left.packet_id}")
    expect(page.locator(".next-step")).to_contain_text("The process that worked on it ended")
    expect(page.locator(".next-step")).to_contain_text("then ask again")


def test_an_unknown_packet_is_explained(page: Page, used_server: ConsoleServer):
    open_place(page, "#/live/pkt_nobody")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("link", name="← All requests")).to_be_visible()
