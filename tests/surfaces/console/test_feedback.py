"""Feedback about a request, on its page, and what was learned, on the page of figures."""

from __future__ import annotations

from playwright.sync_api import Browser, Page, expect

from tests.kit.browser import ConsoleServer, check_access, visit
from tests.requirements import proves

TOKYO = "What time is it in Tokyo right now?"


def open_request(page: Page, text: str) -> None:
    page.locator(".line", has_text=text).click()
    expect(page.get_by_role("link", name="← All requests")).to_be_visible()


@proves("L1", "L7")
def test_a_person_corrects_a_request_and_sees_what_was_learned(
    browser: Browser, server: ConsoleServer
) -> None:
    route = server.ask(TOKYO, caller="dana")
    with visit(browser, server, "#/live", expected="422") as page:
        open_request(page, TOKYO)
        word = page.get_by_role("region", name="Was this the right tool?")
        word.get_by_role("button", name="No…").click()
        word.get_by_label("Should have used").fill("time/nothing")
        word.get_by_role("button", name="Send feedback").click()
        expect(word.get_by_role("alert")).to_contain_text("could not have used 'time/nothing'")
        word.get_by_label("Should have used").fill("convert_time")
        word.get_by_label("Why").fill("<b>between</b> zones")
        word.get_by_role("button", name="Send feedback").click()
        expect(word).to_contain_text("wrong (time/get_current_time), should have used time/convert_time")
        expect(word).to_contain_text("<b>between</b> zones")
        expect(word).to_contain_text("flags.learn_from_feedback is off")
        expect(word.get_by_role("button", name="No…")).to_have_attribute("aria-pressed", "true")
        check_access(page)
        word.get_by_role("button", name="Yes").click()
        expect(word.get_by_role("button", name="Yes")).to_have_attribute("aria-pressed", "true")
        expect(word).not_to_contain_text("should have used time/convert_time")
        server.do(server.router.feedback, route.packet_id, "bad", by="kim", should_have="convert_time")
        page.goto(f"{server.address}/#/insight")
        learned = page.get_by_role("table", name="Corrections")
        expect(learned).to_contain_text("time/convert_time")
        expect(learned).to_contain_text(TOKYO)
        check_access(page)
        page.get_by_role("button", name="Delete all corrections").click()
        expect(page.get_by_text("Feedback received: 0.")).to_be_visible()
    assert server.do(server.router.store.feedback.list_recent) == []
