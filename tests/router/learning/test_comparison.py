"""Before it is switched on: would it help on one's own requests, and lose nothing elsewhere?"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.records import Choice, Feedback, FeedbackVerdict, utc_now
from fingerpost.store import Store
from tests.kit.command_line import CommandLine
from tests.kit.learning import CALENDAR, MAIL, NOTES
from tests.requirements import proves

pytestmark = pytest.mark.process

WORDS_ALONE = {"FINGERPOST_FLAGS__DENSE_SCORES": "false"}
PEOPLE = [
    "Ada", "Ben", "Cleo", "Dov", "Eve", "Finn", "Gil", "Hila", "Ivo", "June", "Kai", "Lea",
    "Max", "Noa", "Omar", "Pia", "Quin", "Rut", "Sol", "Tal", "Uri", "Vera", "Wim", "Yael",
]  # fmt: skip


def clerk(folder: Path) -> CommandLine:
    person = CommandLine(folder)
    for name, tools in (("mail", MAIL), ("calendar", CALENDAR), ("notes", NOTES)):
        person.has(name, tools)
    return person


def remember(person: CommandLine, *entry: Feedback | Choice) -> None:
    async def work() -> None:
        async with Store.open(person.environment["FINGERPOST_STORE__URL"]) as store:
            for one in entry:
                if isinstance(one, Feedback):
                    await store.feedback.record(one)
                else:
                    await store.choices.record(one)

    anyio.run(work)


def bad(number: int, request: str, wrong: str, right: str) -> Feedback:
    return Feedback(
        packet_id=f"pkt_{number}",
        by="dana",
        verdict=FeedbackVerdict.BAD,
        request=request,
        at=utc_now() - timedelta(seconds=number),
        tool=wrong,
        should_have=right,
    )


def create_choice(request: str, tool: str) -> Choice:
    return Choice(request=request, tool=tool, worked=True, at=utc_now())


def run_compare(person: CommandLine) -> tuple[int, dict[str, Any]]:
    done = person.runs("eval", "own", "--compare", "--json", extra=WORDS_ALONE)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def figures(report: dict[str, Any]) -> dict[str, tuple[float, float]]:
    return {one["name"]: (one["before"], one["after"]) for one in report["figures"]}


@proves("L3", "L7")
def test_corrections_that_carry_over_would_help(tmp_path: Path) -> None:
    person = clerk(tmp_path)
    code, report = run_compare(person)
    assert (code, report["verdict"]) == (1, "too little to say")
    remember(
        person,
        *(
            bad(
                n, f"what did {name} say about the budget meeting", "calendar/list_events", "notes/find_notes"
            )
            for n, name in enumerate(PEOPLE)
        ),
        *(create_choice(f"send an e-mail to {name} with the report", "mail/send_mail") for name in PEOPLE),
    )
    code, report = run_compare(person)
    assert (code, report["verdict"]) == (0, "would help")
    before, after = figures(report)["recall@1"]
    assert after - before > 0.3
    assert report["requests"] == 48
    shown = person.runs("learned", extra=WORDS_ALONE)
    assert "would help" in shown.stdout
    assert "Off:                learn_from_feedback" in shown.stdout


@proves("L3")
def test_corrections_that_reach_too_far_lose(tmp_path: Path) -> None:
    person = clerk(tmp_path)
    remember(
        person,
        *(
            bad(
                n,
                f"create the events that {name} mentioned in her notes",
                "calendar/create_event",
                "calendar/list_events",
            )
            for n, name in enumerate(PEOPLE[:4])
        ),
        *(
            create_choice(f"create the events that {name} mentioned in her notes", "calendar/create_event")
            for name in PEOPLE[4:]
        ),
    )
    done = person.runs("eval", "own", "--compare", extra=WORDS_ALONE)
    assert done.returncode == 1
    assert "learning from feedback: loses" in done.stdout
    assert "worse" in done.stdout
    assert "of 4 corrected requests the right tool is first for 0 without it, for 4 with it" in done.stdout


@proves("L3")
def test_a_request_is_not_judged_by_what_was_said_of_itself(tmp_path: Path) -> None:
    person = clerk(tmp_path)
    request = "which notes did I delete"
    remember(
        person,
        *(bad(n, request, "notes/find_notes", "calendar/list_events") for n in range(3)),
        *(create_choice(f"send an e-mail to {name} with the report", "mail/send_mail") for name in PEOPLE),
    )
    code, report = run_compare(person)
    assert (code, report["verdict"]) == (0, "no loss")
    assert all(before == after for before, after in figures(report).values())
    assert report["corrected"] == {"requests": 1, "first_before": 0, "first_after": 1}


@proves("L3")
def test_say_what_is_wanted(tmp_path: Path) -> None:
    person = clerk(tmp_path)
    assert person.runs("eval", "own").returncode == 2
    assert person.runs("eval", "own", "--compare", "--out", "mine").returncode == 2
