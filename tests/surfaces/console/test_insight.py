"""Insight and Audit in the browser: what happened in figures, and the trail of what was decided."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.kit.browser import ConsoleServer, open_place, run_module_server, run_server, shoot, visit
from tests.requirements import proves

TOKYO = "What time is it in Tokyo right now?"
WRITE = 'Write the file "hello.txt" with the content "Hello from Fingerpost"'


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    """A server with some history: three requests that call, one that waits, a call that fails."""
    with run_module_server(tmp_path_factory.mktemp("busy")) as server:
        for _ in range(3):
            assert server.ask(TOKYO, caller="ada").outcome == "answered"
        assert server.ask(WRITE, caller="ben").outcome == "waiting"
        server.do(server.router.call, "time/get_current_time", {"timezone": "nowhere"}, caller="ben")
        yield server


@pytest.fixture(scope="module")
def page(browser: Browser, busy: ConsoleServer) -> Iterator[Page]:
    """One visit for all tests of that server."""
    with visit(browser, busy) as opened:
        yield opened


def figure(page: Page, title: str) -> Locator:
    return page.get_by_role("figure").filter(has=page.locator("figcaption", has_text=title))


@proves("V5")
def test_where_nothing_happened_a_first_request_is_one_click_away(browser: Browser, tmp_path: Path):
    with (
        run_server(tmp_path, servers=[]) as server,
        visit(browser, server, "#/insight") as page,
    ):
        expect(page.get_by_role("heading", name="No requests in this period")).to_be_visible()
        shoot(page, "insight-empty")
        page.get_by_role("link", name="Ask “hello”").click()
        expect(page.get_by_role("textbox").first).to_have_value("hello")
        page.goto(f"{server.address}/#/tools")
        expect(page.get_by_role("heading", name="No tools yet")).to_be_visible()
        page.goto(f"{server.address}/#/servers")
        expect(page.get_by_role("heading", name="No servers yet")).to_be_visible()
        page.goto(f"{server.address}/#/audit")
        expect(page.get_by_role("heading", name="No entries yet")).to_be_visible()
        shoot(page, "audit-empty")


@proves("V6", "I11", "H30")
def test_the_chain_is_verified_and_a_changed_row_is_named(browser: Browser, tmp_path: Path):
    with (
        run_module_server(tmp_path) as server,
        visit(browser, server, "#/audit") as page,
    ):
        server.ask(TOKYO)
        server.ask(TOKYO)
        page.get_by_role("button", name="Verify the chain").click()
        expect(page.locator(".verify").first).to_contain_text("rows, every hash matches")
        page.get_by_role("button", name="Measure the store").click()
        expect(page.locator(".store-size")).to_contain_text("Kept: journal 30 days, audit trail 365 days")
        expect(page.get_by_role("table", name="Tables of the store")).to_contain_text("journal")
        shoot(page, "audit-intact")
        with sqlite3.connect(tmp_path / "store.db") as store:
            store.execute("UPDATE audit SET payload = payload || ' ' WHERE seq = 2")
        page.get_by_role("button", name="Verify the chain").click()
        expect(page.locator(".verify").first).to_contain_text("The first bad row is 2")
        shoot(page, "audit-broken")


@proves("V5", "I8")
def test_figures_of_what_happened(page: Page, busy: ConsoleServer):
    open_place(page, "#/insight")
    glance = page.get_by_role("list", name="At a glance")
    expect(glance.get_by_role("listitem").filter(has_text="in this period").first).to_contain_text("4")
    expect(glance.get_by_role("listitem").filter(has_text="Approvals")).to_contain_text("1")
    most = figure(page, "Most used tools").get_by_role("listitem").first
    expect(most).to_contain_text("time/get_current_time")
    expect(most).to_contain_text("1 failed")
    expect(figure(page, "By caller")).to_contain_text("ada")
    expect(figure(page, "Failures by kind")).to_contain_text("As a table")
    figure(page, "Unused tools").get_by_text("Show all").click()
    expect(figure(page, "Unused tools")).to_contain_text("strange/stir")
    stages = page.get_by_role("table", name="Latency by stage in the whole range")
    expect(stages.get_by_role("row").filter(has_text="ranking tools")).to_contain_text("4")
    shoot(page, "insight")


@proves("V5", "V7")
def test_a_chart_is_walked_with_keys_and_read_as_a_table(page: Page, busy: ConsoleServer):
    open_place(page, "#/insight")
    page.get_by_role("group", name="Range").get_by_role("button", name="30 days").click()
    expect(page.locator(".insight[data-step=day]")).to_be_visible()
    outcomes = figure(page, "Requests by outcome")
    outcomes.get_by_role("group", name="Arrow keys walk through it").focus()
    page.keyboard.press("Home")
    status = outcomes.locator(".chart-said")
    expect(status).to_contain_text(": nothing")
    page.keyboard.press("ArrowLeft")
    expect(status).to_contain_text(": nothing")
    page.keyboard.press("End")
    expect(status).to_contain_text("answered 3, needs approval 1")
    page.keyboard.press("Escape")
    expect(status).not_to_contain_text("answered")
    outcomes.get_by_text("As a table").click()
    expect(outcomes.get_by_role("row").last.get_by_role("cell")).to_have_text(["3", "1"])


@proves("V6", "I11")
def test_the_trail_is_filtered_opened_and_exported(page: Page, busy: ConsoleServer, tmp_path: Path):
    open_place(page, "#/audit")
    rows = page.get_by_role("list", name="Audit trail, newest first").locator("> li")
    expect(rows).to_have_count(5)  # one for each call
    steps = rows.filter(has_text="succeeded").first
    expect(steps).to_contain_text(re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"))
    expect(steps).to_contain_text("allowed by policy: it only reads")
    steps.locator("summary").click()
    for words in ("tool selected", "policy", "attempt finished", "ready to call", "result recorded"):
        expect(steps).to_contain_text(words)
    expect(steps).not_to_contain_text("approved")
    page.get_by_label("Kind").select_option("approval_requested")
    expect(rows).to_have_count(1)  # the one that waits
    page.get_by_label("Text").fill("nothing like that")
    expect(page.get_by_role("heading", name="No matches")).to_be_visible()
    page.get_by_label("Text").fill("write_file")
    rows.last.locator("summary").click()
    rows.last.get_by_role("button", name="approval requested").click()
    entry = page.get_by_role("dialog")
    expect(entry).to_contain_text("files/write_file")
    expect(entry).to_contain_text("Hash")
    shoot(page, "audit-entry")
    page.keyboard.press("Escape")
    with page.expect_download() as found:
        page.get_by_role("link", name="Export NDJSON").click()
    lines = found.value.path().read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["approval_requested"]
    page.get_by_label("Text").fill("")
    page.get_by_label("Kind").select_option("")
    expect(rows.nth(3)).to_be_visible()
    with page.expect_download() as found:
        page.get_by_role("link", name="Export CSV").click()
    cells = list(csv.DictReader(found.value.path().read_text().splitlines()))
    assert {"approval_requested", "attempt_finished"} <= {row["kind"] for row in cells}
    page.get_by_label("To", exact=True).fill("2020-01-01")
    expect(page.get_by_role("heading", name="No matches")).to_be_visible()
