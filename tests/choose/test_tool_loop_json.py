"""Replies in the JSON that models without tools are asked for, however long."""

from __future__ import annotations

import json

from fingerpost.choose.tool_loop import parse_turn
from fingerpost.llm import ModelReply


def test_a_long_answer_in_json_is_read_whole():
    text = "bears " * 30_000 + "end"
    reply = ModelReply(text=json.dumps({"calls": [], "answer": text}), model="scripted")
    turn = parse_turn(reply, (), has_tool_support=False)
    assert (turn.text, turn.problems) == (text, ())
