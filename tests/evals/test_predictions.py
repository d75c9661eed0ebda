"""`fingerpost eval predict` with a model: which of the offered tools it takes, and how that is judged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.kit.command_line import CommandLine
from tests.kit.evals import QUERIES, read_lines, write_lines
from tests.kit.strong_model import StrongModel, beside, runs
from tests.requirements import proves

pytestmark = pytest.mark.process

SET = ("--tools", "tools.jsonl", "--queries", "queries.jsonl")
PREDICT = ("eval", "predict", *SET, "--out", "p.jsonl", "--lexical")
WORDS = {
    "Oslo": "Weather forecast",
    "letter": "letter by post",
    "invoice": "Pay an invoice",
    "commits": "Read a file",  # which is not offered: the model finds nothing
    "Bergen": "Weather forecast",
}


def choose(read: str) -> dict[str, Any] | None:
    """The tool whose description has the words that belong to the request."""
    rows = [json.loads(line) for line in read.splitlines() if line.startswith("{")]
    request = next(row["text"] for row in reversed(rows) if "at" in row)
    wanted = next((text for word, text in WORDS.items() if word in request), None)
    name = next((row["tool"] for row in rows if wanted and wanted in row.get("does", "")), None)
    return None if name is None else {"tool": name, "arguments": {"about": request[:5]}}


async def run_predict(person: CommandLine, model: StrongModel, *more: str) -> dict[str, Any]:
    async with beside(person, model):
        done = await runs(person, *PREDICT, *more)
    assert done.returncode == 0, done.stderr
    lines = {line["id"]: line for line in read_lines((person.home / "p.jsonl").read_text(encoding="utf-8"))}
    return {"stderr": done.stderr, **lines}


@proves("A16")
async def test_a_model_selects_by_the_ids_of_the_set_and_the_report_judges_it(person: CommandLine) -> None:
    letter = "send this letter by post to Dana, on paper, and not as an email to somebody"
    queries = [{**query, "query": letter} if query["id"] == "2" else query for query in QUERIES]
    write_lines(person.home / "queries.jsonl", queries)
    model = StrongModel(select=choose, sure=0.9)
    lines = await run_predict(person, model)
    names = model.asked[1]["response_format"]["json_schema"]["schema"]["properties"]["tool"]["enum"]
    assert names == ["mail__send", "mail__send_2", None]  # two tools of one name are distinguished
    assert [lines[number]["selection"]["tool"] for number in "123"] == ["w", "m2", "odd/id ~\u200b"]
    assert lines["1"]["selection"]["confidence"] == 0.9
    assert lines["1"]["selection"]["arguments"]["about"]
    assert lines["6"]["selection"] == {"tool": None, "arguments": {}, "confidence": 0.0}
    assert len(model.asked) == 5  # the greeting was not sent to the model
    assert "5 questions to the model, 240 tokens" in lines["stderr"]
    prompt = [json.dumps(asked) for asked in model.asked]  # several at once, so in no order
    assert sum("What is the weather forecast for Oslo?" in text for text in prompt) == 2  # and the history
    report = await runs(person, "eval", "report", *SET, "p.jsonl", "--json")
    figures = json.loads(report.stdout)["figures"]
    assert figures["selection_accuracy"]["value"] == 0.8
    assert figures["selection_none"] == {
        "value": 1.0,
        "queries": 1,
        "about": "no tool was selected where none is needed",
    }
    assert figures["selection_ece"]["value"] == pytest.approx(0.08)


async def test_selecting_can_be_left_out_and_needs_a_model(person: CommandLine) -> None:
    model = StrongModel(select=choose)
    lines = await run_predict(person, model, "--no-select")
    assert model.asked == []
    assert "selection" not in lines["1"]
    person.writes("fingerpost.toml", "")
    done = await runs(person, *PREDICT, "--select")
    assert done.returncode == 2
    assert "no model is configured that could select" in done.stderr


async def test_a_model_that_never_answers_is_asked_once_and_explained(person: CommandLine) -> None:
    class Refusing(StrongModel):
        async def complete(self, request: Request) -> Response:
            self.asked.append(json.loads(await request.body()))
            return JSONResponse({"error": {"message": "wrong key"}}, 401)

    model = Refusing()
    async with beside(person, model):
        done = await runs(person, *PREDICT)
    assert done.returncode == 3
    assert "wrong key" in done.stderr
    assert len(model.asked) == 1


async def test_a_model_that_fails_now_and_then_costs_only_those_lines(person: CommandLine) -> None:
    class Moody(StrongModel):
        async def complete(self, request: Request) -> Response:
            body = await request.body()
            if b"pay the invoice" in body:
                return JSONResponse({"error": {"message": "out of order"}}, 400)
            return await super().complete(request)

    lines = await run_predict(person, Moody(select=choose), "--at-once", "2")
    assert lines["3"]["selection"]["tool"] is None
    assert "out of order" in lines["3"]["selection"]["problem"]
    assert lines["5"]["selection"]["tool"] == "w"
    assert "1 of them failed" in lines["stderr"]
