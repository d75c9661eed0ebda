"""A server whose every word is hostile: on all surfaces, what it says is text and nothing more."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.hostile_server import HOSTILE, INVENTED, SCRIPT
from tests.integration.mcp_client import call
from tests.integration.program import ProgramWithModel
from tests.integration.talking import text_of, user, whole
from tests.kit.browser import visit
from tests.requirements import proves

UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
EMPTY = {"tool": "strange/empty_pot", "arguments": {"pot": HOSTILE}}


@pytest.fixture(scope="module")
def packet_id(system: ProgramWithModel) -> str:
    """A request that was answered with the server's words; a call with such words waits for a person."""
    with system.program.openai() as client:
        answer = whole(client, [user(f"Please stir the pot and say how hot it is {HOSTILE}")])
    assert answer["fingerpost"]["tools_used"] == ["strange/stir_pot"]
    text = text_of(answer)
    assert f"the pot is hot. {SCRIPT}" in text  # a chat carries any text
    assert "<tool_call>" not in text  # but not the syntax of calls, which some clients would take for one
    assert not (system.program.workspace / "owned.txt").exists()
    with system.program.http() as client:
        outcome = client.post("/api/call", json=EMPTY).raise_for_status().json()
    assert outcome["error"] == "authorization_required"
    return answer["fingerpost"]["packet_id"]


def look(page: Page, place: str, *shown: str) -> None:
    """A page that shows this, and nothing that runs or cannot be seen."""
    page.goto(re.sub("#.*", "", page.url) + place)
    main = page.locator("main")
    for words in shown:
        expect(main).to_contain_text(words)
    only_text(page, place)


def only_text(page: Page, place: str) -> None:
    unseen = UNSEEN.search(page.locator("body").inner_text())
    assert unseen is None, (place, unseen)
    assert page.locator("main img, main script, main iframe").count() == 0, place
    assert page.title() != "owned", place


@proves("V8")
def test_every_page_of_the_console(browser: Browser, system: ProgramWithModel, packet_id: str):
    script = "<script>document.title='owned'</script>"
    with visit(browser, system.program.address, "#/live") as page:
        look(page, "#/live", f"how hot it is {SCRIPT}")
        look(page, f"#/live/{packet_id}", "strange/stir_pot", script, "␛[31mred")
        page.locator(".steps").get_by_text("Result", exact=True).first.click()
        expect(page.locator(".steps .result-text").first).to_contain_text("the pot is hot.")
        only_text(page, "the result")
        page.get_by_role("tab", name="Events").click()
        for entry in page.locator(".events summary").all():
            entry.click()
        expect(page.locator(".events")).to_contain_text("the pot is hot.")
        only_text(page, "the events")
        look(page, "#/tools", "stir_pot", script)
        look(page, "#/tools/strange/stir_pot", script, "␛[31mred")
        look(page, "#/servers/strange", "stir_pot")
        look(page, "#/approvals", "empty_pot", script)
        look(page, "#/insight", "strange/stir_pot")
        look(page, f"#/audit?packet={packet_id}", "strange/stir_pot")
        page.locator(".trail summary").filter(has_text="strange/stir_pot").click()
        page.get_by_role("button", name="result recorded").click()
        expect(page.get_by_role("dialog")).to_contain_text("the pot is hot.")
        only_text(page, "an entry of the audit trail")


@pytest.mark.process
@proves("V8")
def test_the_api_and_what_machines_read(system: ProgramWithModel, packet_id: str):
    with system.program.http() as client:
        for path in (f"/api/packets/{packet_id}", "/api/tools/strange/stir_pot", "/api/approvals"):
            got = client.get(path).raise_for_status()
            assert got.headers["content-type"] == "application/json"
            assert got.headers["x-content-type-options"] == "nosniff"
            assert "<script>" in got.text
        table = client.get("/api/audit/export", params={"format": "csv"}).raise_for_status().text
        cells = [cell for row in csv.reader(io.StringIO(table)) for cell in row]
        assert any("empty_pot" in cell for cell in cells)
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
        metrics = client.get("/metrics").raise_for_status().text
    assert all(re.match(r"#|fingerpost_|python_|process_", line) for line in metrics.splitlines())
    assert UNSEEN.search(metrics) is None


@pytest.mark.process
@proves("V8")
@pytest.mark.parametrize("command", ["tools", "approvals", "trace", "audit"])
def test_the_terminal(system: ProgramWithModel, packet_id: str, command: str):
    alone = system.program.folder / "strange.json"
    alone.write_text(json.dumps({"mcpServers": {"strange": system.program.servers["strange"]}}))
    commands = {
        "tools": ["tools", "--servers", str(alone)],
        "approvals": ["approvals"],
        "trace": ["trace", packet_id],
        "audit": ["audit", "show"],
    }
    output = system.program.runs(*commands[command])
    assert re.search("stir_pot|empty_pot", output)
    assert UNSEEN.search(output) is None


@pytest.mark.process
@proves("V8")
def test_an_mcp_client(system: ProgramWithModel):
    failed, text = call(system.program, "strange__stir_pot", {"pot": "the red one"})
    assert (failed, INVENTED in text) == (False, True)  # as data of the tool: no call was made from it
    assert not (system.program.workspace / "owned.txt").exists()
