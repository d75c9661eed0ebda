"""Telling a server that could not ask from one that failed otherwise, whatever it sends."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fingerpost.servers.per_caller import build_unsupported_request, is_unsupported_request_failure

WORDS = "elicitation via server-initiated requests is unavailable on 2026-07-28 connections."
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "content"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(content=VALUES)
def test_what_does_not_say_so_is_another_failure(content: Any) -> None:
    assert not is_unsupported_request_failure({"isError": True, "content": content})


@given(before=st.lists(VALUES, max_size=3), after=st.lists(VALUES, max_size=3))
def test_what_the_server_said_stays_in_front_of_what_helps(before: list[Any], after: list[Any]) -> None:
    content = [*before, {"type": "text", "text": WORDS}, *after]
    failed = {"isError": True, "content": content, "_meta": {"own": 1}}
    assert is_unsupported_request_failure(failed)
    result = build_unsupported_request("notes", failed, "Do this.", again=True).result
    assert result == {**failed, "content": [*content, {"type": "text", "text": "Do this."}]}
    assert failed["content"] is content
