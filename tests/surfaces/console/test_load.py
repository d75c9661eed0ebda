"""Live under load: fifty requests a second, a list that stays short, a page that stays quick."""

from __future__ import annotations

from typing import Any

import anyio
from playwright.sync_api import Browser, Page, expect

from fingerpost.events import PacketReceived, RouteBegan, RouteEnded
from fingerpost.records import Mode, Packet, RouteOutcome
from fingerpost.router import Router
from tests.kit.browser import ConsoleServer, visit, write_import
from tests.requirements import proves

PER_SECOND = 50
SECONDS = 4
BEFORE = 320  # more than the list holds
MOST_LINES = 300
MOST_ROWS = 100
HEAP_BYTES = 1_000_000  # that the page may grow by
NODES = 600  # a line is about twelve: of two hundred that came and went, none may stay

# How long the pauses between them are, `python -m benchmarks live` measures.
WATCH_FRAMES = """
window.frames_drawn = 0;
const look = () => { window.frames_drawn += 1; requestAnimationFrame(look); };
requestAnimationFrame(look);
"""


async def flood(router: Router, count: int, per_second: float) -> None:
    """So many requests, each received, started and answered, as events for all listeners."""
    for number in range(count):
        packet = Packet.start(f"request number {number}", caller="load")
        router.events.emit(PacketReceived.from_packet(packet))
        router.events.emit(RouteBegan(packet_id=packet.packet_id, mode=Mode.KEYLESS))
        ended = RouteOutcome.ANSWERED if number % 10 else RouteOutcome.FAILED
        router.events.emit(RouteEnded(packet_id=packet.packet_id, outcome=ended, milliseconds=1.0))
        await anyio.sleep(1 / per_second)


def heap(page: Page) -> int:
    """Bytes the page holds once everything that can go is gone."""
    session: Any = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    return int(page.evaluate("performance.memory.usedJSHeapSize"))


def nodes(page: Page) -> int:
    """Nodes alive, on the page or not."""
    session: Any = page.context.new_cdp_session(page)
    return int(session.send("Memory.getDOMCounters")["nodes"])


def count_lines(page: Page) -> int:
    return int(page.evaluate(f"{write_import('live.js')}.then((module) => module.live.get().lines.length)"))


@proves("V9")
def test_fifty_requests_a_second(browser: Browser, server: ConsoleServer):
    server.do(flood, server.router, BEFORE, 5000)
    with visit(browser, server, "#/live") as page:
        expect(page.locator(".line")).to_have_count(MOST_ROWS)
        server.do(flood, server.router, 150, 500)  # every line has been drawn once
        expect(page.locator(".line").first).to_contain_text("number 149")
        page.evaluate(WATCH_FRAMES)
        began, alive = heap(page), nodes(page)
        flooding = server.portal.start_task_soon(flood, server.router, PER_SECOND * SECONDS, PER_SECOND)
        page.get_by_role("searchbox").press_sequentially("number 199", delay=20)
        expect(page.get_by_role("searchbox")).to_have_value("number 199")
        drawn = page.evaluate("window.frames_drawn")
        flooding.result()
        assert page.evaluate("window.frames_drawn") > drawn > 0  # it goes on drawing while they come
        expect(page.locator(".line")).to_have_count(1)  # the one of before has fallen off the list
        page.get_by_role("searchbox").fill("")
        expect(page.locator(".line").first).to_contain_text("number 199")
        expect(page.locator(".line")).to_have_count(MOST_ROWS)
        assert count_lines(page) <= MOST_LINES
        assert heap(page) - began < HEAP_BYTES
        assert nodes(page) - alive < NODES


def test_a_paused_list_stands_still(browser: Browser, server: ConsoleServer):
    with visit(browser, server, "#/live") as page:
        server.do(flood, server.router, 5, 1000)
        expect(page.locator(".line").first).to_contain_text("number 4")  # what was there before has come, too
        page.get_by_role("button", name="Pause").click()
        before = page.locator(".line-prompt").all_inner_texts()
        server.do(flood, server.router, 3, 1000)
        expect(page.get_by_role("button", name="Resume (3 new)")).to_be_visible()
        assert page.locator(".line-prompt").all_inner_texts() == before
        page.get_by_role("button", name="Resume").click()
        expect(page.locator(".line").first).to_contain_text("number 2")
