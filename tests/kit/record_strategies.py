"""Hypothesis strategies for packets and their parts. No value looks like a secret unless a test wants one."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from fingerpost.records import (
    Content,
    Context,
    DataField,
    ExecutionStatus,
    Header,
    Intent,
    Json,
    Message,
    Packet,
    PacketState,
    Reasoning,
    Reflection,
    Review,
    Selection,
    SketchpadEntry,
    Status,
    SystemTask,
    ToolResult,
    ToolRouting,
)

texts = st.text(max_size=40)
floats = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes(
    min_value=datetime(1970, 1, 1),
    max_value=datetime(2200, 1, 1),
    timezones=st.just(UTC),
)

json_values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**60), 10**60) | floats | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
json_objects = st.dictionaries(texts, json_values, max_size=4)

selections = st.builds(Selection, tool=texts, arguments=json_objects, reasoning=texts, confidence=floats)
reviews = st.builds(Review, approved=st.booleans(), confidence=floats, reasoning=texts)
results = st.builds(
    ToolResult,
    success=st.booleans(),
    output=json_values,
    error=st.none() | texts,
    milliseconds=st.integers(0, 10**9),
)


def tuples(
    items: st.SearchStrategy[Json] | st.SearchStrategy[object], size: int = 3
) -> st.SearchStrategy[object]:
    return st.lists(items, max_size=size).map(tuple)


packets = st.builds(
    Packet,
    header=st.builds(Header, packet_id=texts, session_id=texts, created=moments, caller=st.none() | texts),
    intent=st.builds(Intent, name=st.none() | texts, confidence=st.none() | floats, reasons=tuples(texts)),
    context=st.builds(
        Context, available_tools=tuples(texts), history=tuples(st.builds(Message, role=texts, text=texts))
    ),
    content=st.builds(
        Content,
        original_prompt=texts,
        data_fields=tuples(st.builds(DataField, key=texts, value=json_values, source=st.none() | texts)),
    ),
    reasoning=st.builds(
        Reasoning,
        reflection_log=tuples(
            st.builds(Reflection, at=moments, stage=texts, text=texts, confidence=st.none() | floats)
        ),
        sketchpad=tuples(st.builds(SketchpadEntry, key=texts, text=texts)),
    ),
    status=st.builds(
        Status, state=st.sampled_from(PacketState), next_task=st.none() | st.sampled_from(SystemTask)
    ),
    tool_routing=st.builds(
        ToolRouting,
        needs_tool=st.none() | st.booleans(),
        routing_requested=st.booleans(),
        selected_tool=st.none() | selections,
        alternative_tools=tuples(selections),
        review=st.none() | reviews,
        execution_status=st.none() | st.sampled_from(ExecutionStatus),
        execution_result=st.none() | results,
        reinjection_count=st.integers(0, 3),
    ),
)
