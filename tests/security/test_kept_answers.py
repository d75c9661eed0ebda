"""A question about a read that is not certain: the person's answer can be kept, and by no other caller."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from fingerpost.records import Right
from fingerpost.testing import ToolServer, tool_server
from tests.kit.api import ServedApi, open_served_api
from tests.kit.command_line import CommandLine
from tests.kit.elicitation import accept, create_client, open_elicitation_gateway, request
from tests.kit.strong_model import StrongModel, beside
from tests.kit.terminal import Terminal
from tests.requirements import proves

FETCH = {
    "name": "fetch_page",
    "description": "Fetch a web page and return its text.",
    "inputSchema": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
}
SEND = {"name": "send_mail", "description": "Send a mail.", "inputSchema": FETCH["inputSchema"]}
PAGE = {"url": "https://example.org/"}
KEYED = {"require_key": True}
KEPT = "it only [r]eads"


def web() -> ToolServer:
    return tool_server("web", [FETCH, SEND])


async def wait_for_a_person(opened: ServedApi, tool: str = "fetch_page") -> str:
    """The id of a call that has to wait."""
    outcome = await opened.router.call(f"web/{tool}", PAGE, caller="agent")
    assert outcome.pending_id is not None, outcome.content
    return outcome.pending_id


async def approve(opened: ServedApi, pending_id: str, **more: Any) -> Any:
    return await opened.post(f"/api/approvals/{pending_id}/approve", {"only_reads": True}, **more)


@proves("X8")
async def test_an_operator_approves_and_is_not_asked_again(tmp_path: Path) -> None:
    async with open_served_api(tmp_path, web().spec(), operator=True) as opened:
        pending_id = await wait_for_a_person(opened)
        view = (await opened.get(f"/api/approvals/{pending_id}")).json()
        assert view["may_mark_read_only"] is True
        decided = (await approve(opened, pending_id)).json()
        assert decided["stood"] and decided["approval"]["decision"] == "approved"
        again = await opened.router.call("web/fetch_page", {"url": "https://example.org/other"}, caller="b")
        assert again.success, again.content
        pin = (await opened.router.store.pins.list_all())["web/fetch_page"]
        assert pin.only_reads == "local"


@proves("X8")
async def test_only_who_manages_tools_keeps_the_answer(tmp_path: Path) -> None:
    async with open_served_api(tmp_path, web().spec(), gateway=KEYED) as opened:
        approver = await opened.key("approver", Right.APPROVE, Right.WATCH)
        manager = await opened.key("manager", Right.APPROVE, Right.MANAGE)
        agent = await opened.key("agent", Right.USE)
        pending_id = await wait_for_a_person(opened)
        for key, status in ((approver, 403), (agent, 403)):
            refused = await approve(opened, pending_id, headers=key)
            assert refused.status_code == status, refused.text
        view = (await opened.get(f"/api/approvals/{pending_id}", headers=approver)).json()
        assert (view["may_decide"], view["may_mark_read_only"], view["decision"]) == (True, False, "waiting")
        assert (await approve(opened, pending_id, headers=manager)).json()["stood"] is True
        (again,) = [await opened.router.call("web/fetch_page", {"url": "https://example.org/2"})]
        assert again.success


@proves("X8")
async def test_a_call_that_is_asked_about_for_another_reason_keeps_nothing(tmp_path: Path) -> None:
    rule = {"verdict": "ask", "tool": "web/fetch_page", "caller": "agent"}
    async with open_served_api(tmp_path, web().spec(), policy=[rule], operator=True) as opened:
        for tool in ("send_mail", "fetch_page"):
            pending_id = await wait_for_a_person(opened, tool)
            view = (await opened.get(f"/api/approvals/{pending_id}")).json()
            assert view["may_mark_read_only"] is False
            refused = await approve(opened, pending_id)
            assert (refused.status_code, refused.json()["title"]) == (
                409,
                "This call cannot be marked as read-only",
            )
            waiting = (await opened.get(f"/api/approvals/{pending_id}")).json()
            assert waiting["decision"] == "waiting"


@proves("X8")
async def test_no_answer_by_elicitation_is_kept(tmp_path: Path) -> None:
    server = web()
    first = request(name="web__fetch_page", arguments=PAGE)
    async with open_elicitation_gateway(tmp_path, server.spec()) as gateway:
        asked = await gateway.call(first)
        assert asked.result is not None and "only_reads" not in json.dumps(asked.result, default=str)
        answered = await gateway.retry(first, asked, accept(only_reads=True))
        assert answered.success, answered.content
        pins = await gateway.router.store.pins.list_all()
        assert all(pin.only_reads is None for pin in pins.values())
        other = request(name="web__fetch_page", arguments={"url": "https://example.org/2"}, modern=False)
        person = create_client(accept("approve", only_reads=True))
        assert (await gateway.call(other, person)).success
        assert len(person.questions) == 1 and "only_reads" not in json.dumps(person.questions, default=str)
        assert all(pin.only_reads is None for pin in (await gateway.router.store.pins.list_all()).values())


PROGRAM = """
import json, sys

ANSWERS = {{
    "initialize": {{
        "protocolVersion": "2025-11-25",
        "capabilities": {{"tools": {{}}}},
        "serverInfo": {{"name": "web", "version": "1"}},
    }},
    "tools/list": {{"tools": {tools}}},
    "tools/call": {{"content": [{{"type": "text", "text": "the page"}}]}},
    "ping": {{}},
}}
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") in ANSWERS:
        result = ANSWERS[asked["method"]]
        print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": result}}), flush=True)
    elif "id" in asked:
        error = {{"code": -32601, "message": "not found"}}
        print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "error": error}}), flush=True)
"""


@pytest.fixture
def reader(tmp_path: Path) -> CommandLine:
    person = CommandLine(tmp_path)
    program = person.writes("web.py", PROGRAM.format(tools=[FETCH]))
    person.has("web", command=sys.executable, args=[str(program)])
    person.writes("fingerpost.toml", "[flags]\ndense_scores = false\n")
    return person


def fetching() -> StrongModel:
    return StrongModel(
        select=lambda _: {"tool": "web__fetch_page", "arguments": PAGE},
        answer="Here it is, says web/fetch_page.",
    )


@pytest.mark.process
@proves("X8")
async def test_at_a_terminal_a_person_keeps_the_answer(reader: CommandLine) -> None:
    def sit_down() -> tuple[int, str]:
        with Terminal(reader, "ask", "fetch the page example.org") as terminal:
            shown = terminal.until("[n]o: ")
            terminal.types("r")
            return terminal.end(), shown

    async with beside(reader, fetching()):
        code, shown = await anyio.to_thread.run_sync(sit_down)
        assert KEPT in shown
        assert code == 0
        again = await anyio.to_thread.run_sync(lambda: reader.runs("ask", "fetch the page example.org"))
    assert again.returncode == 0, again.stderr
    assert "says web/fetch_page" in again.stdout


@pytest.mark.process
@proves("X8")
def test_a_waiting_call_is_approved_and_the_answer_kept_by_command(reader: CommandLine) -> None:
    asked = reader.runs("call", "web/fetch_page", "url=https://example.org/")
    assert asked.returncode == 4, asked.stderr
    (waiting,) = reader.reads("approvals")
    done = reader.runs("approvals", "approve", waiting["pending_id"], "--only-reads")
    assert done.returncode == 0, done.stderr
    assert "needs no approval from now on" in done.stdout
    free = reader.runs("call", "web/fetch_page", "url=https://example.org/2")
    assert free.returncode == 0, free.stderr
