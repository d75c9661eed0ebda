"""A running Fingerpost for browsers, a browser, and what every visit is watched for.

    def test_something(browser: Browser, server: ConsoleServer):
        with visit(browser, server, "#/live") as page:
            page.get_by_role("link", name="Ask").click()

The program runs in a thread of its own, with servers inside of it: the test's thread belongs to Playwright.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from weakref import WeakKeyDictionary

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, expect, sync_playwright

from fingerpost import PolicyRule, Router, Scorer
from fingerpost.llm import ModelRequest
from fingerpost.records import JsonObject, ServerSpec
from fingerpost.surfaces.api.sessions import SESSION_COOKIE, ConsoleSessions
from fingerpost.testing import ScriptedModel, tool_server
from tests.kit.gateways import serve_gateway, wait_until_connected
from tests.kit.routers import build_settings, script_model, write_review, write_selection

ROOT: Final = Path(__file__).parents[2]
AXE: Final = ROOT / "node_modules" / "axe-core" / "axe.min.js"
ARTEFACTS: Final = ROOT / ".artefacts" / "console"
PATIENCE_MS: Final = 60_000  # a page that works is never waited for so long
NARROW: Final = 360
WIDE: Final = 1280

HOSTILE: Final = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script> "
    "\x1b[31mred\x1b[0m \u202ereversed \x9bcsi"
)

R = TypeVar("R")


# The program


@dataclass(frozen=True)
class ConsoleServer:
    """A running Fingerpost: its address for the browser, its router for the test."""

    address: str
    router: Router
    portal: BlockingPortal = field(repr=False)

    def do(self, function: Callable[..., Awaitable[R]], *args: Any, **named: Any) -> R:
        """Await something of the program from the test's thread."""

        async def run() -> R:
            return await function(*args, **named)

        return self.portal.call(run)

    def ask(self, text: str, **asking: Any) -> Any:
        """One request, answered; its `Route`."""
        return self.do(self.router.route, text, **asking)


@contextmanager
def run_server(
    folder: Path,
    *,
    servers: Iterable[ServerSpec] | None = None,
    model: ScriptedModel | None = None,
    scorers: Iterable[Scorer] = (),
    rules: Iterable[PolicyRule] = (),
    **more: Any,
) -> Generator[ConsoleServer]:
    """Everything on one port; `more` are settings. Without `model` there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    specs = list(example_servers() if servers is None else servers)
    router = Router(specs, settings=build_settings(folder, **more), model=model, scorers=scorers, rules=rules)
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(_open_console(router)) as address,
    ):
        yield ConsoleServer(address, router, portal)


@asynccontextmanager
async def _open_console(router: Router) -> AsyncGenerator[str]:
    async with router:
        await wait_until_connected(router)
        async with serve_gateway(router) as address:
            yield address


# Its servers


def tool(name: str, description: str, effect: Literal["read", "write", "destroy"], **fields: str) -> Any:
    """A definition whose arguments are texts; `fields` describe them."""
    hints = {"readOnlyHint": effect == "read", "destructiveHint": effect == "destroy"}
    properties = {field: {"type": "string", "description": words} for field, words in fields.items()}
    schema = {"type": "object", "properties": properties, "required": list(fields)}
    return {"name": name, "description": description, "inputSchema": schema, "annotations": hints}


def example_servers() -> list[ServerSpec]:
    """Servers like those of the examples, inside of the program: they cost nothing to start."""
    clock = tool_server(
        "time",
        [
            tool("get_current_time", "Get the current time in a timezone", "read", timezone="IANA name"),
            tool("convert_time", "Convert a time between timezones", "read", time="HH:MM", timezone="to"),
        ],
        call=_tell_time,
    )
    files = tool_server(
        "files",
        [
            tool("read_text_file", "Read the contents of a text file", "read", path="Path of the file"),
            tool("write_file", "Create or write a file", "write", path="Path", content="What to write"),
            tool("delete_file", "Delete a file for good", "destroy", path="Path of the file"),
        ],
        call=_keep_files,
    )
    strange = tool_server("strange", [tool("stir", f"Stir the pot. {HOSTILE}", "read", pot=HOSTILE)])
    return [clock.spec(), files.spec(), strange.spec()]


async def _tell_time(name: str, arguments: dict[str, Any]) -> str:
    if "/" not in str(arguments.get("timezone", "")):
        raise ValueError(f"no time zone is called {arguments.get('timezone')!r}")
    return f'{{"timezone": "{arguments["timezone"]}", "datetime": "2026-05-04T09:30:00"}}'


async def _keep_files(name: str, arguments: dict[str, Any]) -> str:
    if name == "write_file":
        return f"wrote {arguments['path']}"
    return "\n".join(f"{number}. buy milk, {HOSTILE}" for number in range(40))


# Its model


def create_example_model() -> ScriptedModel:
    """A model that knows the examples: what it selects hangs on the request's words."""
    return script_model(selection=_selection, review=lambda _: write_review(0.86), answer=_answer)


def _selection(request: ModelRequest) -> str:
    prompt = "\n".join(message.text for message in request.messages)
    if "Tokyo" in prompt or "טוקיו" in prompt:
        other: JsonObject = {
            "tool": "time/convert_time",
            "arguments": {},
            "confidence": 0.2,
            "reasoning": "converts",
        }
        why = "The request asks for the present time in a city"
        return write_selection(
            "time/get_current_time", {"time_zone": "Asia/Tokyo"}, alternatives=[other], reasoning=why
        )
    if "notes.md" in prompt:
        return write_selection("files/read_text_file", {"path": "notes.md"})
    if named := re.search(r"(?:Write the|Create a) file \\?\"(\w+\.txt)", prompt):
        return write_selection("files/write_file", {"path": named[1], "content": "Hello from Fingerpost"})
    return write_selection(None)


def _answer(request: ModelRequest) -> str:
    prompt = "\n".join(message.text for message in request.messages)
    if "Asia/Tokyo" in prompt:
        return "It is half past nine in Tokyo."
    return "Done." if ".txt" in prompt else "Hello. What can be done for you?"


# The browser


def write_import(module: str) -> str:
    """The JavaScript that gives a module of the console: the one that the page has loaded."""
    return f"import(new URL('{module}', document.querySelector('script[type=module]').src))"


@contextmanager
def chromium() -> Generator[Browser]:
    """Debian's Chromium (or Chrome); skips where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium on this machine: install the package `chromium`")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--enable-precise-memory-info"],
        )
        yield browser
        browser.close()


@contextmanager
def visit(
    browser: Browser,
    server: ConsoleServer | str,
    path: str = "",
    *,
    scheme: Literal["light", "dark"] = "light",
    width: int = WIDE,
    expected: str = r"(?!)",
    signed_in: bool = True,
    **context: Any,
) -> Generator[Page]:
    """A page of the console in a context of its own.

    Fails at the end where the page complained: an error in its console, an exception, a breach of the
    content security policy. `expected` is a pattern of complaints that belong to the test. Where no key is
    needed, the operator is signed in, unless `signed_in` says otherwise.
    """
    address = server if isinstance(server, str) else server.address
    complaints: list[str] = []
    page = _open_page(browser, context)
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 900})
    if signed_in and isinstance(server, ConsoleServer) and not server.router.settings.gateway.require_key:
        token, _ = server.do(ConsoleSessions(server.router.store, hours=1).open_session, None)
        page.context.add_cookies([{"name": SESSION_COOKIE, "value": token, "url": server.address}])

    def hear(message: ConsoleMessage) -> None:
        complaints.extend(_complaint(message))

    def note(error: Error) -> None:
        complaints.append(str(error))

    page.on("console", hear)
    page.on("pageerror", note)
    is_reusable = False
    try:
        page.goto(f"{address}/{path}")
        yield page
        unexpected = [one for one in complaints if not re.search(expected, one)]
        assert not unexpected, unexpected
        assert page.title() != "owned"
        is_reusable = not context and len(page.context.pages) == 1
    finally:
        page.remove_listener("console", hear)
        page.remove_listener("pageerror", note)
        if is_reusable:
            _clear_page(page, address)
            _idle[browser] = page
        else:
            page.context.close()


def open_place(page: Page, place: str) -> None:
    """Open a place of the console in the same visit, as if the page before had been another one.

    It takes a third of the CPU of a visit of its own.
    """
    page.evaluate("location.hash = '#/nowhere'")
    page.get_by_text("There is no such page").wait_for()
    page.evaluate("place => { location.hash = place }", place)
    page.locator("h1:focus:not(:text('Not found'))").wait_for()


# A new window costs a second of CPU, most of it for its own parts: the last one is used again, empty.
_idle: WeakKeyDictionary[Browser, Page] = WeakKeyDictionary()


def _open_page(browser: Browser, context: dict[str, Any]) -> Page:
    if not context and (idle := _idle.pop(browser, None)) is not None:
        return idle
    opened = browser.new_context(**context)
    opened.set_default_timeout(PATIENCE_MS)
    return opened.new_page()


def _clear_page(page: Page, address: str) -> None:
    """Leave nothing of this visit: neither what was stored nor what was routed.

    It stays at the same address, on a picture: each change to an empty page and back takes a new process.
    """
    page.unroute_all()
    page.evaluate("localStorage.clear(); sessionStorage.clear()")
    page.goto(f"{address}/console/logo.svg")
    page.context.set_offline(False)
    page.context.clear_cookies()
    page.context.clear_permissions()


def _complaint(message: ConsoleMessage) -> list[str]:
    """What the page complained about, and where."""
    if message.type not in {"error", "warning"}:
        return []
    where = message.location["url"]
    return [f"{message.text} {where}".strip()]


def both_schemes() -> list[tuple[Literal["light", "dark"], int]]:
    """How a page is looked at: each scheme once, a wide window and a narrow one."""
    return [("light", WIDE), ("dark", NARROW)]


def shoot(page: Page, name: str) -> None:
    """Where `PICTURES` is set, a picture of the whole page among the artefacts, for people to look at."""
    if "PICTURES" in os.environ:
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        (ARTEFACTS.parent / ".gitignore").write_text("*\n")
        page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True)


def check_access(page: Page) -> None:
    """No serious or critical finding of axe, and nothing sticks out to the side."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")
    findings = [
        f"{one['id']}: {one['help']}: {[_describe_node(node) for node in one['nodes'][:3]]}"
        for one in found["violations"]
        if one["impact"] in {"serious", "critical"}
    ]
    assert findings == []
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"the page is {wide} px wider than its window"


def _describe_node(node: dict[str, Any]) -> str:
    return f"{node['target']} {node.get('failureSummary', '')}"


def run_module_server(folder: Path, **more: Any) -> AbstractContextManager[ConsoleServer]:
    """The server most tests share: with servers like the examples', and a model that knows them."""
    return run_server(folder, model=create_example_model(), **more)
