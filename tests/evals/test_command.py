"""`fingerpost eval`, as an operator runs it."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.records import Choice
from fingerpost.store import Store
from fingerpost.surfaces.cli.evals import defer_interrupt
from tests.kit.command_line import CommandLine, tool
from tests.kit.evals import QUERIES, TOOLS, read_lines, write_lines
from tests.kit.tables import table
from tests.requirements import proves
from tests.test_public_api import HEAVY, list_loaded_packages

pytestmark = pytest.mark.process

SET = ("--tools", "tools.jsonl", "--queries", "queries.jsonl")


def run_predict(person: CommandLine, *more: str) -> dict[str, dict[str, Any]]:
    done = person.runs("eval", "predict", *SET, "--out", "p.jsonl", *more)
    assert done.returncode == 0, done.stderr
    return {line["id"]: line for line in read_lines((person.home / "p.jsonl").read_text(encoding="utf-8"))}


async def list_reports(person: CommandLine) -> list[tuple[str, Any]]:
    async with Store.open(person.environment["FINGERPOST_STORE__URL"]) as store:
        return [(one.name, one.report["figures"]) for one in await store.evals.list_newest()]


def first(line: Mapping[str, Any]) -> str:
    return line["ranking"][0]["tool"]


@pytest.mark.parametrize("words_only", [True, False])
def test_every_query_is_answered_with_the_ids_of_the_set(person: CommandLine, words_only: bool) -> None:
    lines = run_predict(person, *(["--lexical"] if words_only else []))
    assert list(lines) == [query["id"] for query in QUERIES]
    for line in lines.values():
        assert set(line) == {"id", "need", "fit", "ranking", "ms"}
        assert line["need"]["verdict"] in ("tool", "none", "unclear")
        assert 0 <= line["need"]["score"] <= 1
        assert 0 <= line["fit"] <= 1
        assert line["ms"] > 0
        scores = [place["score"] for place in line["ranking"]]
        assert len({place["tool"] for place in line["ranking"]}) == len(scores) == len(TOOLS)
    assert [first(lines[name]) for name in "1234"] == ["w", "m2", "odd/id ~\u200b", "g"]
    assert first(lines["5"]) == "w"  # the conversation says what it is about


def test_top_bounds_the_ranking_and_limit_the_queries(person: CommandLine) -> None:
    lines = run_predict(person, "--lexical", "--top", "2", "--limit", "3")
    assert [len(line["ranking"]) for line in lines.values()] == [2, 2, 2]


def test_candidates_are_ranked_among_themselves_and_unknown_ones_noted(person: CommandLine) -> None:
    done = person.runs(
        "eval", "predict", *SET, "--out", "-", "--lexical", "--scope", "candidates", "--top", "1"
    )
    assert done.returncode == 0, done.stderr
    lines = {line["id"]: line for line in read_lines(done.stdout)}
    assert [place["tool"] for place in lines["4"]["ranking"]] == ["g", "f"]
    assert len(lines["1"]["ranking"]) == 1
    assert "1 candidate id of no tool in the set: nothing" in done.stderr


def test_tools_that_cannot_be_taken_and_bad_lines_are_told(person: CommandLine) -> None:
    write_lines(person.home / "tools.jsonl", [*TOOLS, {"id": "blank", "server": "x", "name": " "}])
    done = person.runs("eval", "predict", *SET, "--out", "-", "--lexical", "--limit", "1")
    assert "left out: blank: has no name" in done.stderr
    assert done.returncode == 0
    person.writes("queries.jsonl", '{"id": "1", "query": "fine"}\n{"id": "2"}\n')
    done = person.runs("eval", "predict", *SET, "--out", "-", "--lexical")
    assert done.returncode == 2
    assert "queries.jsonl, line 2: 'query' is missing" in done.stderr


def test_a_set_without_tools_is_judged_by_need_alone(person: CommandLine) -> None:
    person.writes("tools.jsonl", "")
    lines = run_predict(person)
    assert all(line["ranking"] == [] and line["fit"] == 0 for line in lines.values())
    assert lines["6"]["need"]["verdict"] == "none"


def test_an_interruption_waits_until_a_written_line_is_counted() -> None:
    counted = 0
    with pytest.raises(KeyboardInterrupt), defer_interrupt():
        signal.raise_signal(signal.SIGINT)
        counted += 1
    assert counted == 1


def test_what_was_written_survives_an_interruption(person: CommandLine) -> None:
    write_lines(
        person.home / "queries.jsonl",
        [{"id": str(number), "query": f"commits number {number}"} for number in range(30_000)],
    )
    out = person.home / "p.jsonl"
    running = subprocess.Popen(
        person.command("eval", "predict", *SET, "--out", str(out), "--lexical"),
        cwd=person.home,
        env=person.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        anyio.run(_until_written, out)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=40)
    finally:
        running.kill()
    assert running.returncode == 130
    written = out.read_text(encoding="utf-8")
    assert written.endswith("\n")
    lines = read_lines(written)
    assert [line["id"] for line in lines] == [str(number) for number in range(len(lines))]
    assert f"stopped: {len(lines):,} of 30,000 predictions are written" in errors


async def _until_written(out: Path) -> None:
    file = anyio.Path(out)
    with anyio.fail_after(40):
        while not (await file.exists() and (await file.stat()).st_size > 2000):  # noqa: ASYNC110 - a process writes it
            await anyio.sleep(0.05)


@proves("N7")
def test_a_report_judges_the_predictions_and_keeps_bounds(person: CommandLine) -> None:
    run_predict(person, "--lexical")
    report = person.runs("eval", "report", *SET, "p.jsonl", "--json")
    figures = json.loads(report.stdout)["figures"]
    assert figures["recall@1"] == {"value": 1.0, "queries": 5, "about": "needed tools among the first 1"}
    assert {"recall@20", "all@10", "ndcg@10", "mrr", "need_accuracy", "ms_p50", "ms_p99"} <= set(figures)
    bounds = ("--least", "recall@5=0.8", "--most", "recall@10=0.9")
    shown = person.runs("eval", "report", *SET, "p.jsonl", *bounds)
    assert shown.returncode == 1
    assert "recall@10" in shown.stdout
    assert "recall@10 at most 0.9: it is 1" in shown.stderr
    assert "recall@5" not in shown.stderr
    kept = person.runs("eval", "report", *SET, "p.jsonl", "--keep", "our tools", "--json")
    assert anyio.run(list_reports, person) == [("our tools", json.loads(kept.stdout)["figures"])]
    wrong = person.runs("eval", "report", *SET, "p.jsonl", "--least", "recall@7=0.8")
    assert (wrong.returncode, "no figure 'recall@7'" in wrong.stderr) == (2, True)


@proves("D12")
def test_two_runs_are_compared_query_by_query(person: CommandLine) -> None:
    lines = run_predict(person, "--lexical")
    worse = [{**line, "ranking": line["ranking"][1:]} for line in lines.values()]
    write_lines(person.home / "worse.jsonl", worse[:-1])
    done = person.runs("eval", "report", *SET, "p.jsonl", "worse.jsonl", "--json")
    compared = json.loads(done.stdout)["compared"]["recall@1"]
    assert (compared["before"], compared["after"], compared["interval"]) == (1.0, 0.0, [-1.0, -1.0])
    assert compared["verdict"] == "worse"
    assert "has no line for 1 of the 6 queries" in done.stderr
    shown = person.runs("eval", "report", *SET, "p.jsonl", "worse.jsonl")
    assert "worse" in shown.stdout


def remember(person: CommandLine, *choices: tuple[str, str]) -> None:
    async def note() -> None:
        async with Store.open(person.environment["FINGERPOST_STORE__URL"]) as store:
            for request, key in choices:
                await store.choices.record(
                    Choice(request=request, tool=key, worked=True, at=datetime.now(tz=UTC))
                )

    anyio.run(note)


OFFICE = [
    tool("get_forecast", "Weather forecast for a city."),
    tool("send_mail", "Send an email to somebody."),
    tool("list_commits", "List the commits of a repository."),
]


@proves("A17")
def test_an_operator_gates_a_change_on_their_own_requests(person: CommandLine) -> None:
    person.has("office", OFFICE)
    empty = person.runs("eval", "own", "--out", "mine")
    assert (empty.returncode, "No tool has worked" in empty.stderr) == (1, True)
    remember(
        person,
        ("what will the weather be in Oslo", "office/get_forecast"),
        ("which commits are new", "office/list_commits"),
        ("play a song", "gone/player"),
    )
    made = person.runs("eval", "own", "--out", "mine")
    assert made.returncode == 0, made.stderr
    assert "3 tools and 2 requests written to mine; 1 choice of tools that are gone" in made.stdout
    assert stat.S_IMODE((person.home / "mine" / "queries.jsonl").stat().st_mode) == 0o600
    mine = ("--tools", "mine/tools.jsonl", "--queries", "mine/queries.jsonl")
    later = CommandLine(person.home)  # servers are needed no more
    done = later.runs("eval", "predict", *mine, "--out", "p.jsonl", "--lexical")
    assert done.returncode == 0, done.stderr
    assert later.runs("eval", "report", *mine, "p.jsonl", "--least", "recall@1=1").returncode == 0


@proves("D12")
def test_shadow_mode_shows_which_requests_would_be_offered_other_tools(person: CommandLine) -> None:
    person.has("office", OFFICE)
    requests = person.writes(
        "requests.txt",
        'what will the weather be in Oslo\n{"query": "look at the forecast, the commits and the email"}\n\n',
    )
    same = ("eval", "shadow", "--requests", str(requests), "--set", "narrow.candidates=3")
    unchanged = person.runs(*same)
    assert (unchanged.returncode, "0 of 2 requests (0 %)" in unchanged.stdout) == (0, True), unchanged.stderr
    changed = person.runs(
        "eval", "shadow", "--requests", str(requests), "--set", "narrow.max_tools=1", "--json"
    )
    found = json.loads(changed.stdout)
    assert changed.returncode == 1
    assert found["requests"] == 2
    assert found["differing"] >= 1
    for one in found["contrasts"]:
        assert len(one["after"]) == 1
        assert set(one["lost"]) == set(one["before"]) - set(one["after"])
    refused = person.runs("eval", "shadow", "--requests", str(requests), "--set", "narrow.max_tool=1")
    assert refused.returncode == 2
    assert "max_tool" in refused.stderr


@proves("D12")
def test_shadow_mode_takes_recorded_requests_when_none_are_given(person: CommandLine) -> None:
    person.has("office", OFFICE)
    none = person.runs("eval", "shadow", "--set", "narrow.max_tools=1")
    assert (none.returncode, "no requests to compare" in none.stderr) == (2, True)
    remember(person, ("weather in Oslo, and send an email with the commits", "office/get_forecast"))
    found = person.reads("eval", "shadow", "--set", "narrow.max_tools=1")
    assert found["requests"] == 1


@proves("P9")
@table("command", ["predict", "report", "own", "shadow"])
def test_the_help_of_a_command_loads_nothing_heavy(command: str) -> None:
    loaded = list_loaded_packages(
        f"sys.argv = ['fingerpost', 'eval', {command!r}, '--help']\n"
        "from fingerpost.surfaces.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as leave:\n    assert not leave.code, leave.code\n"
    )
    assert loaded & HEAVY == set()


@proves("Q5")
def test_tune_finds_the_share_of_meaning_and_changes_nothing(person: CommandLine) -> None:
    # Words alone do not find all of them.
    requests = {"g": "who changed the code last?", "m2": "stationery and a stamp", "f": "show me notes.txt"}
    queries = [
        {"id": f"{name}{number}", "query": f"{text} ({number})", "relevant": [name]}
        for name, text in requests.items()
        for number in range(3)
    ]
    write_lines(person.home / "queries.jsonl", queries)
    off = person.runs("eval", "tune", *SET)
    assert off.returncode != 0
    assert "flags.dense_scores is false" in off.stderr
    on = {"FINGERPOST_FLAGS__DENSE_SCORES": "true"}
    done = person.runs("eval", "tune", *SET, "--json", extra=on)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report["shares"]) == {f"{step / 10:g}" for step in range(11)}
    assert report["shares"]["0"]["recall@1"] < report["shares"][f"{report['best']:g}"]["recall@1"] == 1
    assert (report["best"], report["better"]) == (0.6, False)  # the nearest to the default of 0.55
    text = person.runs("eval", "tune", *SET, extra=on)
    assert "recall@1 on queries not tuned on: 1.000 today, 1.000 tuned" in text.stdout
    assert "leave the setting as it is" in text.stdout
    few = person.runs("eval", "tune", *SET, "--limit", "3", extra=on)
    assert few.returncode != 0
    assert "too few to tune on" in few.stderr
