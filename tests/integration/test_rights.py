"""A program that requires keys: what each key may do in the chat, in the API and in the browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from openai import AuthenticationError
from playwright.sync_api import Browser, Page, expect

from tests.integration.program import ServeProgram, file_server, run_program
from tests.integration.talking import text_of, user, whole
from tests.kit.browser import visit
from tests.requirements import proves

RIGHTS = {"agent": ("use",), "other": ("use",), "guard": ("watch", "approve")}
EVERY_RIGHT = ("use", "watch", "approve", "manage")
REFUSED = "status of 40[13]"  # what a browser says of an answer that is a refusal


@dataclass(frozen=True)
class Locked:
    """A program that asks everybody for a key, and has no model."""

    program: ServeProgram
    keys: dict[str, str]

    def get(self, name: str, path: str) -> tuple[int, Any]:
        with self.program.http(self.keys[name]) as client:
            got = client.get(path)
            return got.status_code, got.json()

    def post(self, name: str, path: str, body: dict[str, Any] | None = None) -> int:
        with self.program.http(self.keys[name]) as client:
            return client.post(path, json=body or {}).status_code

    def live(self, name: str) -> list[Any]:
        """The lines that the live stream begins with."""
        with self.program.http(self.keys[name]) as client, client.stream("GET", "/api/live") as got:
            first = next(line for line in got.iter_lines() if line.startswith("data:"))
        return json.loads(first.removeprefix("data:"))


@pytest.fixture(scope="module")
def locked_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    folder = tmp_path_factory.mktemp("locked")
    lock = {
        "FINGERPOST_GATEWAY__REQUIRE_KEY": "true",
        "FINGERPOST_PROFILES__READER__EFFECTS": '["read"]',
    }
    with run_program(folder, {"files": file_server(folder)}, lock) as program:
        keys = {name: create_key(program, name, *may) for name, may in RIGHTS.items()}
        keys["reader"] = create_key(program, "reader", *EVERY_RIGHT, more=("--profile", "reader"))
        yield Locked(program, keys)


def create_key(program: ServeProgram, name: str, *rights: str, more: tuple[str, ...] = ()) -> str:
    may = (part for right in rights for part in ("--may", right))
    output = program.runs("keys", "add", name, *may, *more)
    found = re.search(r"fp_\S+", output)
    assert found is not None
    return found[0]


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Sign in").click()


@proves("O7", "I3", "V3")
def test_one_key_chats_another_approves(browser: Browser, locked_program: Locked):
    program = locked_program.program
    path = program.workspace / "locked.txt"
    wanted = f'Use files/write_file with path "{path}" and content "Hello"'
    with (
        program.openai(locked_program.keys["agent"]) as client,
        ThreadPoolExecutor() as threads,
        visit(browser, program.address, "#/approvals", expected=REFUSED) as guard,
        visit(browser, program.address, "#/approvals", expected=REFUSED) as agent,
    ):
        sign_in(guard, locked_program.keys["guard"])
        expect(guard.get_by_role("heading", name="No calls are waiting")).to_be_visible()
        answer = threads.submit(whole, client, [user(wanted)])
        expect(guard.get_by_role("article")).to_contain_text("locked.txt")
        [waiting] = locked_program.get("guard", "/api/approvals")[1]["items"]
        decide = f"/api/approvals/{waiting['pending_id']}"

        sign_in(agent, locked_program.keys["agent"])  # sees that it waits, and nothing to press
        expect(agent.get_by_role("article")).to_contain_text("locked.txt")
        expect(agent.get_by_role("article").get_by_role("button")).to_have_count(0)
        assert [locked_program.post("agent", f"{decide}/{word}") for word in ("approve", "reject")] == [
            403,
            403,
        ]
        assert locked_program.get("other", decide)[0] == 404
        assert not path.exists()

        guard.get_by_role("article").get_by_role("button", name="Approve once").click()
        expect(guard.get_by_role("article").get_by_role("status")).to_contain_text("Approved by guard")
        reply = answer.result()
        assert "files/write_file" in text_of(reply)
        assert reply["fingerpost"]["outcome"] == "answered"
        expect(agent.get_by_role("article").get_by_role("status")).to_contain_text("Approved by guard")
    assert path.read_text() == "Hello"
    assert len(program.writes()) == 1

    packet = f"/api/packets/{reply['fingerpost']['packet_id']}"
    seen = {name: locked_program.get(name, "/api/packets")[1]["items"] for name in RIGHTS}
    assert {name: len(lines) for name, lines in seen.items()} == {"agent": 1, "other": 0, "guard": 1}
    assert {name: locked_program.live(name) for name in RIGHTS} == seen
    assert {name: locked_program.get(name, packet)[0] for name in RIGHTS} == {
        "agent": 200,
        "other": 404,
        "guard": 200,
    }


@pytest.mark.process
@proves("I3")
def test_what_a_key_may_not(locked_program: Locked):
    assert locked_program.get("agent", "/api/audit")[0] == 403
    assert locked_program.post("guard", "/api/tools/files/write_file/switch") == 403
    assert locked_program.post("guard", "/api/ask") == 403
    with locked_program.program.http() as client:
        assert client.get("/api/packets").status_code == 401
    for key in ("any key does", "fp_" + "0" * 40):
        with locked_program.program.openai(key) as client, pytest.raises(AuthenticationError):
            whole(client, [user("Hello")])


@pytest.mark.process
@proves("I3", "I4")
def test_a_key_for_a_profile_approves_nothing_beyond_it(locked_program: Locked):
    path = locked_program.program.workspace / "beyond.txt"
    call = {"tool": "files/write_file", "arguments": {"path": str(path), "content": "Hello"}}
    assert locked_program.post("agent", "/api/call", call) == 200
    [waiting] = locked_program.get("guard", "/api/approvals")[1]["items"]
    assert locked_program.get("reader", "/api/approvals")[1]["items"] == []
    decide = f"/api/approvals/{waiting['pending_id']}"
    assert [locked_program.post("reader", f"{decide}/{word}") for word in ("approve", "reject")] == [404, 404]
    assert locked_program.post("agent", "/api/call", call) == 200
    assert not path.exists()
    assert locked_program.post("guard", f"{decide}/reject") == 200
