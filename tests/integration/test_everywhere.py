"""What is asked at one surface is seen at all others."""

from __future__ import annotations

import json
import re
import time

import pytest
from playwright.sync_api import Browser, expect

from tests.integration.mcp_client import call
from tests.integration.program import PATIENCE_S, ProgramWithModel, ServeProgram
from tests.integration.talking import user, whole
from tests.kit.browser import visit
from tests.requirements import proves

TOKYO = "Please tell me the current time in Tokyo"


def count_answered(program: ServeProgram) -> float:
    """Requests that were answered, as Prometheus reads it."""
    return metric(program, r'fingerpost_requests_total\{outcome="answered"\}')


def metric(program: ServeProgram, name: str) -> float:
    with program.http() as client:
        text = client.get("/metrics").raise_for_status().text
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def wait_for_readers(program: ServeProgram, count: int) -> None:
    """Until so many read live streams: who opened or closed one is noticed a moment later."""
    end = time.monotonic() + PATIENCE_S
    while (readers := metric(program, "fingerpost_live_streams")) != count:
        assert time.monotonic() < end, readers
        time.sleep(0.05)


@proves("O1", "I2", "I9", "I11", "V1")
def test_a_request_of_a_chat_is_seen_everywhere(browser: Browser, system: ProgramWithModel):
    program = system.program
    before = count_answered(program)  # counting begins with the first read
    with program.openai() as client, visit(browser, program.address, "#/live") as page:
        data = whole(client, [user(TOKYO)])["fingerpost"]
        packet_id = data["packet_id"]

        page.locator(".line", has_text=TOKYO).click()
        steps = page.locator(".steps")
        for words in ("time/get_current_time", "It only reads"):
            expect(steps).to_contain_text(words)
        expect(page.get_by_role("region", name="Answer")).to_contain_text("It is late in Tokyo.")
        expect(page).to_have_url(re.compile(packet_id))

    [line] = program.get("/api/packets", text=TOKYO)["items"]
    assert line["packet_id"] == packet_id
    assert (line["state"], line["outcome"], line["tools"]) == ("ended", "answered", ["time/get_current_time"])
    assert line["saved_tokens"] == data["saved_tokens"] > 0
    assert count_answered(program) == before + 1
    trail = program.get("/api/audit", packet_id=packet_id)["items"]
    assert {"call_ruled", "attempt_finished"} <= {entry["kind"] for entry in trail}
    with program.http() as client:
        assert client.post("/api/audit/verify").raise_for_status().json()["intact"] is True
    assert "time/get_current_time" in program.runs("trace", packet_id)
    traced = json.loads(program.runs("trace", packet_id, "--json"))
    assert traced[-1]["kind"] == "route_ended"


@pytest.mark.process
@proves("I9")
def test_who_reads_a_live_stream_is_counted_while_they_do(system: ProgramWithModel):
    program = system.program
    wait_for_readers(program, 0)
    with program.http() as client, client.stream("GET", "/api/live") as one:
        pieces = one.iter_raw()  # held: a stream whose reader is dropped is closed
        next(pieces)
        wait_for_readers(program, 1)
        with client.stream("GET", "/api/live") as other:
            more = other.iter_raw()
            next(more)
            wait_for_readers(program, 2)
    wait_for_readers(program, 0)


@proves("V1", "V3", "I4")
def test_a_call_of_an_mcp_client_is_approved_in_the_browser_and_made_again_runs_once(
    browser: Browser, system: ProgramWithModel
):
    program = system.program
    path = program.workspace / "by-mcp.txt"
    arguments = {"path": str(path), "content": "Hello"}
    with visit(browser, program.address, program.sign_in()) as page:
        page.get_by_role("link", name="Live").click()
        failed, text = call(program, "files__write_file", arguments)
        assert failed
        assert "approv" in text
        assert not path.exists()
        line = page.locator(".line", has_text="files/write_file").first
        expect(line).to_contain_text("needs approval")
        page.get_by_role("link", name="Approvals").click()
        card = page.get_by_role("article")
        expect(card).to_contain_text("by-mcp.txt")
        card.get_by_role("button", name="Approve once").click()
        expect(card.get_by_role("status")).to_contain_text("Approved by")
        assert not path.exists()  # only its client makes the call

        assert call(program, "files__write_file", arguments)[0] is False
        assert path.read_text() == "Hello"
        page.get_by_role("link", name="Live").click()
        expect(page.locator(".line", has_text="files/write_file").first).to_contain_text("succeeded")
    assert program.writes().count(arguments) == 1
    assert call(program, "files__write_file", arguments)[0] is True  # it was good for one run
    assert program.writes().count(arguments) == 1
