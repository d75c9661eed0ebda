"""Requests within requests, and a question of a tool, as the console shows them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from fingerpost.builtin import make_server
from fingerpost.builtin.toolkit import BuiltinHost
from fingerpost.events import SubagentBegan
from fingerpost.llm import ModelRequest
from fingerpost.settings import Settings
from fingerpost.testing import ScriptedModel, calls
from fingerpost.testing.models import ScriptLine
from tests.kit.browser import ConsoleServer, check_access, run_server, visit
from tests.requirements import proves

NEST = "Use a subagent to find out which files mention the budget"
ASK = "Ask me which city you should look at"


def say(request: ModelRequest) -> ScriptLine:
    prompt = next(message.text for message in request.messages if message.role == "user")
    prompt_text = "\n".join(message.text for message in request.messages if message.role == "tool")
    if prompt == NEST:
        return (
            "Two files."
            if prompt_text
            else calls(("specialists__run_subagent", {"task": "look into <b>them</b>"}))
        )
    if prompt == ASK:
        question = {"operation": "ask", "question": "Which city?", "options": ["Oslo", "Rome"]}
        return (
            "So Rome it is."
            if "answered: Rome" in prompt_text
            else calls(("collaboration__user_collaboration", question))
        )
    return "a.md and b.md"


@pytest.fixture(scope="module")
def nested_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    folder = tmp_path_factory.mktemp("nested")
    host = BuiltinHost(settings=Settings(), folder=folder)
    own = [make_server(name, host) for name in ("specialists", "collaboration")]
    overrides = [override.model_dump() for server in own for override in server.build_overrides()]
    with run_server(
        folder,
        servers=[server.build_spec() for server in own],
        model=ScriptedModel(say),
        tools=overrides,
        policy=[{"verdict": "allow"}],
        choose={"mode": "simple"},
    ) as console_server:
        host.router = console_server.router
        yield console_server


@proves("U11")
def test_parent_and_child_lead_to_each_other(browser: Browser, nested_server: ConsoleServer):
    route = nested_server.ask(NEST)
    (child,) = [event.child for event in route.events if isinstance(event, SubagentBegan)]
    with visit(browser, nested_server, "#/live") as page:
        expect(page.locator(".line", has_text="look into <b>them</b>")).to_contain_text("subagent")
        expect(page.locator(".line", has_text=NEST).locator(".line-kind")).to_have_count(0)
        page.locator(".line", has_text=NEST).click()
        step = page.locator(".step-subagent")
        expect(step).to_have_count(1)
        expect(step).to_contain_text("answered")
        check_access(page)
        step.get_by_role("link", name=child).click()
        expect(page.locator(".answer")).to_contain_text("a.md and b.md")
        page.get_by_role("link", name=route.packet_id).click()
        expect(page.locator(".step-subagent")).to_contain_text(child)


@proves("U10")
def test_a_tools_question_is_answered_with_a_click_and_the_request_goes_on(
    browser: Browser, nested_server: ConsoleServer
):
    with visit(browser, nested_server, "#/ask") as page:
        page.get_by_label("Request").fill(ASK)
        page.keyboard.press("Control+Enter")
        expect(page.locator(".answer")).to_contain_text("Which city?")
        page.get_by_role("button", name="Rome").click()
        expect(page.locator(".answer")).to_contain_text("So Rome it is.")
        expect(page.locator(".answer")).to_contain_text("answered")
