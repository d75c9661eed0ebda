"""Take pictures of every console page: light, dark and at the width of a phone.

    python tools/pictures.py FOLDER             # every page
    python tools/pictures.py FOLDER ask tools   # only pages whose names begin like this
    python tools/pictures.py --readme           # docs/images/journey.png

It serves the example servers and one that cannot start, with a store of its own, makes requests of every
kind, and opens each page in Chromium. For each picture it prints what is wider than the window.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

ROOT: Final = Path(__file__).parent.parent
Pages = dict[str, tuple[str, Callable[[Page], None]]]  # address and what is done there, by name

README_PICTURE: Final = ROOT / "docs" / "images" / "journey.png"
README_REQUEST: Final = "what time is it in Tokyo right now?"
WRITE: Final = 'write the file "report.txt" with the content "All servers are up."'
LOOKS: Final = {"light": ("light", 1280), "dark": ("dark", 1280), "phone": ("light", 390)}
REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "answered": {"request": README_REQUEST},
    "two-steps": {"request": 'read the file "notes.md" and tell me what time it is in Tokyo'},
    "no-tool": {"request": "hello, how are you?"},
    "waiting": {"request": WRITE},
    "rejected": {"request": 'create the directory "drafts"'},
    "approved": {"request": 'write the file "done.txt" with the content "Approved in the console."'},
    "dry-run": {"request": 'read the file "notes.md"', "dry_run": True},
    "failed": {"request": 'read the file "missing.md"'},
    "question": {"request": "convert a time to another time zone"},
}


class Api:
    """The API of a running Fingerpost, called as the signed-in operator."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.headers = {"content-type": "application/json"}

    def sign_in(self, link: str) -> str:
        """Open a session with a link of `fingerpost console`; returns the cookie's value."""
        with self._open("POST", "/api/session", {"ticket": link.rsplit("/", 1)[1].strip()}) as response:
            person = json.load(response)
            name, value = response.headers["set-cookie"].split(";")[0].split("=", 1)
        self.headers |= {"cookie": f"{name}={value}", "x-csrf-token": person["csrf"]}
        return f"{name}={value}"

    def send(self, method: str, path: str, body: Any = None) -> Any:
        with self._open(method, path, body) as response:
            return json.load(response)

    def _open(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, self.headers, method=method)
        return urllib.request.urlopen(request, timeout=60)


@contextmanager
def serve(folder: Path, kind: Literal["examples", "broken", "none"]) -> Generator[tuple[Api, str]]:
    """Serve the example servers, those and one that cannot start, or none; yields the API and a cookie."""
    shutil.copytree(ROOT / "examples" / "workspace", folder / "workspace")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    servers = folder / "servers.json"
    text = (ROOT / "examples" / "servers.json").read_text()
    entry = '"mcpServers": {\n    "weather": {"command": "weather-server"},'
    texts = {"examples": text, "broken": text.replace('"mcpServers": {', entry), "none": '{"mcpServers": {}}'}
    servers.write_text(texts[kind])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    store = {"FINGERPOST_STORE__URL": f"sqlite:///{folder}/store.db", "TMPDIR": str(folder)}
    env = {**os.environ, **store}
    command = ["fingerpost", "serve", "--servers", str(servers), "--port", port]
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_until_ready(address, process)
        link = subprocess.run(
            ["fingerpost", "console", "--servers", str(servers)],
            cwd=folder, env=env, check=True, capture_output=True, text=True,
        ).stdout.split()[-1]  # fmt: skip
        api = Api(address)
        yield api, api.sign_in(link)
    finally:
        process.terminate()
        process.wait(20)


def wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(240):
        if process.poll() is not None:
            sys.exit("fingerpost serve did not start")
        with suppress(OSError), urllib.request.urlopen(f"{address}/readyz", timeout=2):
            return
        time.sleep(0.5)
    sys.exit("fingerpost serve was not ready after two minutes")


def ask_everything(api: Api) -> dict[str, str]:
    """Make requests of every kind; returns the request ids by kind."""
    ids: dict[str, str] = {}
    for kind, body in REQUESTS.items():
        route = api.send("POST", "/api/ask", body)
        ids[kind] = route["packet_id"]
        if kind in {"rejected", "approved"}:
            decide(api, "reject" if kind == "rejected" else "approve")
    api.send("POST", "/api/route", {"request": "list the tables of the database"})
    call(api, "everything/echo", {"message": "hello"})
    call(api, "time/get_current_time", {"timezone": "Mars/Olympus"})
    return ids


def decide(api: Api, decision: str) -> None:
    """Decide on the newest waiting call."""
    newest = api.send("GET", "/api/approvals?limit=1")["items"][0]
    body = {"reason": "Not needed."} if decision == "reject" else {}
    api.send("POST", f"/api/approvals/{newest['pending_id']}/{decision}", body)
    time.sleep(2)  # its request goes on


def call(api: Api, tool: str, arguments: dict[str, Any]) -> None:
    with suppress(urllib.error.HTTPError):
        api.send("POST", "/api/call", {"tool": tool, "arguments": arguments})


# Pages


def list_pages(ids: dict[str, str]) -> Pages:
    """Return (address, what is done there before the picture is taken) by the picture's name."""
    requests = {f"request-{kind}": (f"#/live/{one}", open_details) for kind, one in ids.items()}
    return {
        "live": ("#/live", do_nothing),
        **requests,
        "request-time": (f"#/live/{ids['two-steps']}", click("tab", "Time")),
        "request-events": (f"#/live/{ids['two-steps']}", click("tab", "Events")),
        "ask": ("#/ask", do_nothing),
        "ask-run": (f"#/ask?request={README_REQUEST}", click("button", "Run", wait="Open in Live")),
        "ask-route": ("#/ask?request=list the tables", click("button", "Route only", wait="Offered tools")),
        "ask-no-tool": ("#/ask?request=hello there", click("button", "Route only", wait="No tool needed")),
        "ask-waiting": (f"#/ask?request={WRITE}", click("button", "Run", wait="Approve")),
        "approvals": ("#/approvals", open_approval),
        "approvals-history": ("#/approvals", click("tab", "History")),
        "tools": ("#/tools", do_nothing),
        "tool": ("#/tools/files/write_file", do_nothing),
        "tool-try": ("#/tools/time/get_current_time", try_tool),
        "servers": ("#/servers", do_nothing),
        "server": ("#/servers/files", do_nothing),
        "server-down": ("#/servers/weather", do_nothing),
        "server-add": ("#/servers", click("link", "Add a server")),
        "server-trial": ("#/servers?add", add_server("mcp-server-time")),
        "server-trial-failed": ("#/servers?add", add_server("no-such-program")),
        "server-edit": ("#/servers/memory", click("link", "Edit")),
        "insight": ("#/insight", do_nothing),
        "audit": ("#/audit", open_details),
        "help": ("#/live", lambda page: page.keyboard.press("?")),
    }  # fmt: skip


def do_nothing(page: Page) -> None:
    """The page as it opens."""


def click(role: Any, name: str, wait: str | None = None) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        page.get_by_role(role, name=name).first.click()
        if wait is not None:
            page.get_by_text(wait).first.wait_for()

    return act


def open_details(page: Page) -> None:
    """Open the first of the page's collapsed parts."""
    first = page.locator("main details:not(.options) > summary").first
    if first.count():
        first.click()


def add_server(command: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        page.get_by_label("Name (required)").fill("clock")
        page.get_by_label("Command (required)").fill(command)
        page.get_by_label("Environment variables").fill("API_KEY=sk-live-0123456789abcdef")
        page.get_by_role("button", name="Test connection").click()
        page.get_by_role("button", name="Save").and_(page.locator(":enabled")).wait_for()

    return act


def open_approval(page: Page) -> None:
    if (page.viewport_size or {"width": 0})["width"] < 900:
        page.get_by_role("list", name="Approvals").get_by_role("link").first.click()


def try_tool(page: Page) -> None:
    page.get_by_label("timezone").first.fill("Asia/Tokyo")
    page.get_by_role("button", name="Check (dry run)").click()
    page.get_by_text("Nothing was called").first.wait_for()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Open in Live").first.wait_for()
    page.locator(".snippets > summary").click()


# Pictures


@contextmanager
def open_browser() -> Generator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = next(found for name in names if (found := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


def open_page(
    browser: Browser, api: Api, cookie: str, look: str, *, height: int = 900, scale: float = 1
) -> Page:
    scheme, width = LOOKS[look]
    context = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 844 if width < 500 else height},
        has_touch=width < 500,
        device_scale_factor=scale,
    )
    name, value = cookie.split("=", 1)
    context.add_cookies([{"name": name, "value": value, "url": api.address}])
    context.set_default_timeout(20_000)
    return context.new_page()


def take_pictures(folder: Path, wanted: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, serve(Path(place), "broken") as (api, cookie):
        ids = ask_everything(api)
        with open_browser() as browser:
            for look in LOOKS:
                page = open_page(browser, api, cookie, look)
                take_each(page, api.address, list_pages(ids), wanted, folder, look)


def take_empty_pictures(folder: Path, wanted: list[str]) -> None:
    """The pages without servers and requests; in dark without being signed in."""
    names = ("live", "ask", "approvals", "tools", "servers", "insight", "audit")
    pages: Pages = {f"empty-{name}": (f"#/{name}", do_nothing) for name in names}
    with (
        tempfile.TemporaryDirectory() as place,
        serve(Path(place), "none") as (api, cookie),
        open_browser() as browser,
    ):
        for look in LOOKS:
            page = open_page(browser, api, "none=0" if look == "dark" else cookie, look)
            take_each(page, api.address, pages, wanted, folder, look)


def take_each(page: Page, server: str, pages: Pages, wanted: list[str], folder: Path, look: str) -> None:
    page.on("console", report)
    page.on("pageerror", lambda error: print("  error:", error))
    for name, (address, act) in pages.items():
        if not wanted or any(name.startswith(one) for one in wanted):
            take_picture(page, server, name, address, act, folder / f"{name}-{look}.png")


def report(message: ConsoleMessage) -> None:
    if message.type in {"error", "warning"}:
        print("  console:", message.text)


def take_picture(
    page: Page, server: str, name: str, address: str, act: Callable[[Page], None], path: Path
) -> None:
    page.goto("about:blank")
    page.goto(f"{server}/{address}")
    page.locator("main h1").first.wait_for()
    page.wait_for_timeout(700)
    try:
        act(page)
    except Exception as error:  # noqa: BLE001 -- the picture shows what is there instead
        print(f"  {name}: {error}".splitlines()[0])
    page.wait_for_timeout(500)
    scrolled = page.evaluate("scrollY")
    page.evaluate("scrollTo(0, 0)")
    wide = page.evaluate(FIND_WIDE)
    print(path.name, f"scrolled to {scrolled}", *(["WIDE", *wide] if wide else []))
    page.screenshot(path=path, full_page=True)


FIND_WIDE: Final = """() => document.documentElement.scrollWidth <= innerWidth ? [] :
  [...document.querySelectorAll("main *")].filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
    .slice(0, 8).map((one) => `${one.tagName}.${one.className}`)"""


def take_readme_picture() -> None:
    """The page of one answered request."""
    with tempfile.TemporaryDirectory() as place, serve(Path(place), "examples") as (api, cookie):
        api.send("POST", "/api/ask", {"request": "list the tables"})  # it loads what both need
        route = api.send("POST", "/api/ask", {"request": README_REQUEST})
        with open_browser() as browser:
            page = open_page(browser, api, cookie, "light", height=1510, scale=1.15)
            page.goto(f"{api.address}/#/live/{route['packet_id']}")
            page.get_by_text("Offered").first.wait_for()
            page.wait_for_timeout(1000)
            page.screenshot(path=README_PICTURE)
    print(README_PICTURE.relative_to(ROOT), f"{README_PICTURE.stat().st_size // 1000} KB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="where the pictures go")
    parser.add_argument("pages", nargs="*", help="beginnings of page names; all without any")
    parser.add_argument("--readme", action="store_true", help="take docs/images/journey.png")
    given = parser.parse_args()
    if given.readme:
        take_readme_picture()
    elif given.folder:
        take_pictures(given.folder, given.pages)
        take_empty_pictures(given.folder, given.pages)
    else:
        parser.error("name a folder, or --readme")


if __name__ == "__main__":
    main()
