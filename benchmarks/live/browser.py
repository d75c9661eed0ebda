"""A real browser on the page Live: what it shows, what it holds, how long it did not react."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from playwright.async_api import Page, async_playwright

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Frames that come late, and from a key pressed to what it changed on the screen.
WATCH: Final = """async () => {
  const seen = { gap: 0, input: 0, updates: 0, frames: 0 };
  window.seen = seen;
  let before = performance.now();
  const look = (now) => {
    seen.gap = Math.max(seen.gap, now - before);
    seen.frames += 1;
    before = now;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) seen.input = Math.max(seen.input, entry.duration);
  }).observe({ type: "event", durationThreshold: 16 });
  const { live } = await import("/console/live.js");
  live.subscribe(() => { seen.updates += 1; });
}"""
HELD: Final = "import('/console/live.js').then((module) => module.live.get().lines.length)"


@dataclass(frozen=True)
class PageMemory:
    """What a page holds once everything that can go is gone."""

    heap: int  # bytes
    nodes: int
    rows: int  # on the page
    lines: int  # in its memory


@dataclass(frozen=True)
class PageFigures:
    """What a page went through."""

    gap: float  # ms between two frames, at most
    input: float  # ms from a key to the screen, at most; 0: always within a frame
    updates: int
    frames: int


class Watcher:
    """A page that shows Live."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def begin(self) -> None:
        await self._page.evaluate(WATCH)

    async def newest(self, words: str) -> None:
        """Wait until the first line is this one."""
        await self._page.locator(".line").first.filter(has_text=words).wait_for()

    async def type_and_clear(self) -> None:
        """What a person does meanwhile: look for something, and stop looking for it."""
        box = self._page.get_by_role("searchbox")
        await box.press_sequentially("tokyo")
        await box.press("Control+a")
        await box.press("Delete")

    async def held(self) -> PageMemory:
        session: Any = await self._page.context.new_cdp_session(self._page)
        await session.send("HeapProfiler.collectGarbage")
        counters = await session.send("Memory.getDOMCounters")
        await session.detach()
        return PageMemory(
            heap=int(await self._page.evaluate("performance.memory.usedJSHeapSize")),
            nodes=int(counters["nodes"]),
            rows=await self._page.locator(".line").count(),
            lines=int(await self._page.evaluate(HELD)),
        )

    async def seen(self) -> PageFigures:
        return PageFigures(**await self._page.evaluate("window.seen"))


@asynccontextmanager
async def open_watcher(address: str) -> AsyncGenerator[Watcher]:
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        message = "no Chromium on this machine: install the package `chromium`"
        raise SystemExit(message)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--enable-precise-memory-info"],
        )
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        await page.goto(f"{address}/#/live")
        yield Watcher(page)
        await browser.close()
