"""Ask: examples, routing only, running, questions back, approvals on the spot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from fingerpost import Call, CallContext, Ruling, ScorerRequest, ToolCard, ToolScore, Verdict
from tests.kit.browser import ConsoleServer, both_schemes, check_access, open_place, run_server, shoot, visit
from tests.requirements import proves


@pytest.fixture(scope="module")
def page(browser: Browser, server: ConsoleServer) -> Iterator[Page]:
    """One visit for all tests of that server."""
    with visit(browser, server) as opened:
        yield opened


def test_an_example_is_one_click_away(page: Page, server: ConsoleServer):
    open_place(page, "#/ask")
    page.get_by_role("button", name="What time is it in Tokyo").click()
    answer = page.locator(".answer")
    expect(answer).to_contain_text("It is half past nine in Tokyo.")
    expect(answer).to_contain_text("answered")
    expect(answer.locator(".sources")).to_contain_text("time/get_current_time")
    expect(page.locator(".step-call")).to_contain_text("succeeded")
    page.get_by_role("link", name="Open in Live").click()
    expect(page.locator(".answer")).to_contain_text("It is half past nine")


def test_routing_only_calls_nothing(page: Page, server: ConsoleServer):
    open_place(page, "#/ask")
    page.get_by_label("Request").fill("Read the text file notes.md")
    page.get_by_role("button", name="Route only").click()
    first = page.locator(".candidate").first
    expect(first).to_contain_text("files/read_text_file")
    expect(first).to_contain_text("offered")
    first.locator("summary").click()
    expect(first).to_contain_text("Read the contents of a text file")
    expect(page.locator(".candidate.lost").first).to_contain_text("less than the best")
    expect(page.locator(".step-call")).to_have_count(0)
    expect(page.locator(".answer")).to_contain_text("Nothing was called.")
    page.get_by_label("Request").fill("hello")
    page.get_by_role("button", name="Route only").click()
    expect(page.locator(".answer")).to_contain_text(re.compile(r"No tool needed \(chance that one is: \d+"))
    expect(page.locator(".candidate.offered")).to_have_count(0)
    page.get_by_role("link", name="Live", exact=True).click()
    line = page.locator(".line", has_text="notes.md").first
    expect(line.locator(".badge.info")).to_have_text("route only")
    expect(line.locator(".line-saved")).to_have_text("–")  # no model ran


@proves("V2")
def test_a_call_that_asks_is_approved_on_the_spot_and_goes_on(page: Page, server: ConsoleServer):
    open_place(page, "#/ask")
    page.get_by_role("button", name="Create a file").click()
    answer = page.locator(".answer")
    expect(answer).to_contain_text("needs approval")
    expect(answer).to_contain_text("files/write_file needs your approval")
    expect(answer.get_by_role("button", name="Reject")).to_be_visible()
    answer.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator(".answer")).to_contain_text("Done.")
    expect(page.locator(".answer")).to_contain_text("answered")
    expect(page.get_by_role("dialog")).to_have_count(0)


@proves("V13")
def test_mode_and_dry_run_hold(page: Page, server: ConsoleServer):
    open_place(page, "#/ask")
    page.get_by_label("Mode").select_option("keyless")
    page.get_by_label("Dry run").check()
    page.get_by_label("Request").fill("What time is it in Tokyo right now?")
    page.keyboard.press("Shift+Enter")
    expect(page.get_by_label("Request")).to_have_value("What time is it in Tokyo right now?\n")
    page.keyboard.press("Enter")
    expect(page.locator(".answer .badge")).to_have_text("dry run")
    expect(page.locator(".step-call")).to_contain_text("not called: dry run")
    page.get_by_role("link", name="Live", exact=True).click()
    expect(page.locator(".line").first).to_contain_text("none calleddry run")


def test_hebrew_is_typed_and_answered_right_to_left(page: Page, server: ConsoleServer):
    open_place(page, "#/ask")
    page.get_by_role("button", name="טוקיו").click()
    box = page.get_by_label("Request")
    assert box.evaluate("element => getComputedStyle(element).direction") == "rtl"
    expect(page.locator(".answer")).to_contain_text("answered")


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    with run_server(tmp_path_factory.mktemp("keyless")) as server:
        yield server


@proves("V13")
def test_a_question_back_can_be_answered(browser: Browser, keyless: ConsoleServer):
    with visit(browser, keyless, "#/ask") as page:
        for answered in ("pressed", "typed"):
            page.get_by_label("Request").fill("What time is it?")
            page.get_by_role("button", name="Run", exact=True).click()
            expect(page.locator(".answer")).to_contain_text("Which of these do you mean?")
            if answered == "pressed":
                page.get_by_role("button", name="time/get_current_time").click()
            else:  # on the request's own page
                page.get_by_role("link", name="Open in Live").click()
                page.get_by_label("Your answer").fill("time/get_current_time")
                page.get_by_role("button", name="Answer").click()
            expect(page.locator(".answer")).to_contain_text("timezone")
            page.get_by_label("Your answer").fill("Asia/Tokyo")
            page.get_by_role("button", name="Answer").click()
            expect(page.locator(".answer")).to_contain_text("2026-05-04")


def test_without_a_model_examples_work(browser: Browser, keyless: ConsoleServer):
    with visit(browser, keyless, "#/ask") as page:
        expect(page.get_by_text("No model is configured")).to_be_visible()
        for example, words in {"What time is it in Tokyo": "2026-05-04", "hello": "Hello"}.items():
            page.get_by_role("button", name=re.compile(f"^{example}")).click()
            expect(page.locator(".answer")).to_contain_text(words)
            expect(page.locator(".answer .badge")).to_have_text("answered")


def test_what_goes_wrong_is_said_in_a_sentence(browser: Browser, keyless: ConsoleServer):
    with visit(browser, keyless, "#/ask") as page:
        page.get_by_label("Mode").select_option("staged")
        page.get_by_label("Request").fill("What time is it in Tokyo right now?")
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("model")
        expect(page.get_by_role("alert")).to_contain_text("Set models.prime")  # what to do about it
        expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()


def test_it_can_be_read_by_everybody(browser: Browser, server: ConsoleServer):
    looks = both_schemes()
    scheme, width = looks[-1]
    with visit(browser, server, "#/ask", scheme=scheme, width=width) as page:
        page.get_by_role("button", name="What time is it in Tokyo").click()
        expect(page.locator(".answer .badge")).to_have_text("answered")
        expect(page.locator(".answer h2")).to_be_in_viewport()  # also on a phone, where the form is long
        for scheme, width in reversed(looks):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 900})
            check_access(page)
            shoot(page, f"ask-{scheme}-{width}")


class Popular:
    """A scorer of a program."""

    label = "popular"
    weight = 0.4

    def scores(self, request: ScorerRequest, cards: Sequence[ToolCard]) -> dict[str, ToolScore]:
        return {"time/get_current_time": ToolScore(0.5, "everybody takes it")}


class Faulty:
    """A scorer that fails."""

    label = "faulty"
    weight = 0.4

    def scores(self, request: ScorerRequest, cards: Sequence[ToolCard]) -> dict[str, float]:
        return {"time/get_current_time": 1 / (request.text == "")}


class NightRest:
    """A rule of a program."""

    label = "night rest"

    def judge(self, call: Call, context: CallContext) -> Ruling | None:
        return Ruling(verdict=Verdict.DENY, reason="everybody sleeps", rule="")


@proves("H26")
def test_scorers_and_rules_of_a_program_are_shown_by_their_labels(browser: Browser, tmp_path: Path):
    scorers, rules = [Popular(), Faulty()], [NightRest()]
    with (
        run_server(tmp_path, scorers=scorers, rules=rules) as server,
        visit(browser, server, "#/ask") as page,
    ):
        page.get_by_label("Request").fill("What time is it in Tokyo right now?")
        page.get_by_role("button", name="Route only").click()
        first = page.locator(".candidate").first
        first.locator("summary").click()
        expect(first.locator(".parts")).to_contain_text("popular +0.20 everybody takes it")
        expect(page.locator(".legend").first).to_contain_text("popular")
        failed = "The scorer faulty was left out: it raised ZeroDivisionError."
        expect(page.get_by_text(failed)).to_be_visible()
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page.locator(".step-call")).to_contain_text("everybody sleeps (night rest)")
