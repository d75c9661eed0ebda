"""Whatever a server answers: what goes on is a result as the protocol has it, or an error of ours."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fingerpost.call.execution.results import normalize_result
from fingerpost.errors import ServerReplyInvalid
from tests.kit.call_runner import a_call
from tests.requirements import proves

anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
kinds = st.sampled_from(["text", "image", "audio", "resource", "resource_link", "hologram"]) | anything
blocks = st.fixed_dictionaries(
    {},
    optional={
        "type": kinds,
        "text": anything,
        "data": anything,
        "uri": anything,
        "name": anything,
        "resource": st.fixed_dictionaries({}, optional={"uri": anything, "text": anything, "blob": anything})
        | anything,
    },
)
results = st.fixed_dictionaries(
    {},
    optional={
        "content": st.lists(blocks | anything, max_size=4) | blocks | anything,
        "isError": st.booleans() | anything,
        "structuredContent": anything,
        "resultType": st.sampled_from(["complete", "input_required", "task"]) | anything,
        "task": anything,
        "requestState": anything,
        "inputRequests": anything,
    },
)


@proves("G8")
@given(results)
def test_a_result_is_right_afterwards_and_one_that_is_right_stays_the_very_same(result: Any) -> None:
    try:
        made: Any = normalize_result(result, a_call())
    except ServerReplyInvalid:
        return
    if made.get("resultType") == "input_required" and "content" not in result:
        return
    assert normalize_result(made, a_call()) == made
    if made.get("resultType", "complete") == "complete":
        assert normalize_result(made, a_call()) is made
        assert isinstance(made["content"], list)
        assert all(isinstance(block, dict) and isinstance(block["type"], str) for block in made["content"])
        assert isinstance(made.get("isError", False), bool)
    for key in result.keys() - {"content", "isError"}:
        assert made[key] == result[key]
