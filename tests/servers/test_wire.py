"""The pure parts that read what servers send: lines, events, messages, definitions, waits."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, jsonrpc

from fingerpost.errors import ConfigError
from fingerpost.records import find_json_problem
from fingerpost.records.json import find_json_fault
from fingerpost.servers import Server, errors, supervisor
from fingerpost.servers.connection import build_client_capabilities
from fingerpost.servers.connection_state import RetryPace, compute_delay
from fingerpost.servers.definitions import DefinitionFilter, find_schema_fault
from fingerpost.servers.library import ALL_CAPABILITIES
from fingerpost.servers.process import LOG_FILE_BYTES, LogFolder, RingBuffer, get_log_file
from fingerpost.servers.wire import (
    MAX_VALUES,
    InvalidMessage,
    OversizedInteger,
    find_answered_request,
    parse_message,
)
from fingerpost.settings.model import LimitSettings
from fingerpost.sse import LineLimitExceeded, LineSplitter, SseEventTooLarge, SseParser
from tests.kit.tables import table
from tests.requirements import proves

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces, cut at these places (modulo its length)."""
    edges = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(edges)]


places = st.lists(st.integers(min_value=0, max_value=10_000), max_size=12)


def test_what_is_written_down_of_the_protocol_is_as_in_the_library() -> None:
    ours = (errors.INVALID_REQUEST, errors.METHOD_NOT_FOUND, errors.INVALID_PARAMS)
    assert ours == (jsonrpc.INVALID_REQUEST, jsonrpc.METHOD_NOT_FOUND, jsonrpc.INVALID_PARAMS)
    assert supervisor.SUBSCRIPTION_ID_META_KEY == SUBSCRIPTION_ID_META_KEY
    declared = build_client_capabilities(ALL_CAPABILITIES)
    assert declared.model_dump(exclude_none=True) == ALL_CAPABILITIES


@given(lines=st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))), at=places)
def test_lines_come_out_whole_however_they_are_cut(lines: list[bytes], at: list[int]):
    splitter = LineSplitter(1000)
    got = [
        line for piece in cut(b"".join(line + b"\n" for line in lines), at) for line in splitter.split(piece)
    ]
    assert got == lines
    assert splitter.remainder == b""


@proves("F7")
@given(length=st.integers(min_value=0, max_value=60), at=places, ended=st.booleans())
def test_a_line_is_refused_exactly_when_it_is_longer_than_the_limit(length: int, at: list[int], ended: bool):
    splitter = LineSplitter(30)
    data = b"short\n" + b"x" * length + (b"\n" if ended else b"")
    refused = False
    try:
        for piece in cut(data, at):
            splitter.split(piece)
    except LineLimitExceeded:
        refused = True
    assert refused == (length > 30)


@proves("H14")
@given(chunks=st.lists(st.binary(max_size=50)), limit=st.integers(min_value=0, max_value=64))
def test_a_ring_holds_exactly_the_newest_bytes(chunks: list[bytes], limit: int):
    ring = RingBuffer(limit)
    for chunk in chunks:
        ring.write(chunk)
    everything = b"".join(chunks)
    assert ring.read_tail() == everything[len(everything) - min(limit, len(everything)) :]
    assert ring.written == len(everything)
    assert len(ring.read_tail(5)) == min(5, limit, len(everything))


@given(
    payloads=st.lists(st.text(min_size=1).filter(lambda text: "\r" not in text)),
    at=places,
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.sampled_from(["", "\ufeff"]),
)
def test_events_come_out_whole_however_they_are_cut(payloads: list[str], at: list[int], end: str, mark: str):
    stream = mark + "".join(
        f": comment{end}event: message{end}"
        + "".join(f"data: {line}{end}" for line in payload.split("\n"))
        + f"id: {number}{end}{end}"
        for number, payload in enumerate(payloads)
    )
    reader = SseParser(10_000)
    events = [event for piece in cut(stream.encode(), at) for event in reader.parse(piece)]
    assert [event.data.decode() for event in events] == payloads
    assert [event.event_id for event in events] == [str(number) for number in range(len(payloads))]


def test_an_unfinished_event_is_never_delivered():
    assert SseParser(100).parse(b"data: half\n") == []


def test_an_event_of_many_lines_is_bounded_as_a_whole():
    reader = SseParser(100)
    with pytest.raises(SseEventTooLarge):
        for _ in range(20):
            reader.parse(b"data: ten bytes!\n")


@given(st.binary())
def test_no_bytes_confuse_the_event_reader(data: bytes):
    try:
        SseParser(50).parse(data)
    except SseEventTooLarge:
        assert len(data) > 50


@given(result=st.dictionaries(st.text(), json_values, max_size=4), number=st.integers(0, 2**52))
def test_a_reply_is_read_without_loss(result: dict[str, Any], number: int):
    message = parse_message(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode())
    assert isinstance(message, JSONRPCResponse)
    assert message.id == number
    assert message.result == result


@proves("F8", "F9")
@given(st.binary(max_size=200))
def test_no_bytes_make_the_message_parser_fail_in_an_unexpected_way(data: bytes):
    try:
        message = parse_message(data)
    except InvalidMessage as why:
        assert str(why)
    else:
        assert isinstance(message, JSONRPCResponse | JSONRPCError | JSONRPCRequest | JSONRPCNotification)


@proves("F11")
@given(result=json_values, code=st.integers(-40000, 40000))
def test_both_a_result_and_an_error_is_never_read_as_either(result: Any, code: int):
    both = {"jsonrpc": "2.0", "id": 1, "result": {"a": result}, "error": {"code": code, "message": "x"}}
    with pytest.raises(InvalidMessage, match="both"):
        parse_message(json.dumps(both).encode())


def test_an_error_that_is_null_beside_a_result_is_only_sloppy():
    message = parse_message(b'{"jsonrpc":"2.0","id":1,"result":{"ok":true},"error":null}')
    assert isinstance(message, JSONRPCResponse)


@proves("F13")
def test_a_number_too_long_to_carry_stands_out_instead_of_hiding_its_neighbours():
    message = parse_message(b'{"jsonrpc":"2.0","id":1,"result":{"a":1,"b":%s}}' % (b"9" * 5000))
    assert isinstance(message, JSONRPCResponse)
    assert message.result["a"] == 1
    assert isinstance(message.result["b"], OversizedInteger)


@table(
    ("data", "waiting", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{', [7, 8], 7),
        (b'{"jsonrpc":"2.0","result":{"x":' + b"1" * 20_000 + b',"id": 8,', [7, 8], 8),
        (b'{"jsonrpc":"2.0","id":"seven","result":{', ["seven"], "seven"),
        (b'{"jsonrpc":"2.0","result":{', [7], 7),
        (b'{"jsonrpc":"2.0","result":{', [7, 8], None),
        (b'{"jsonrpc":"2.0","method":"notifications/x","params":{', [7], None),
        (b"*** welcome ***", [7], None),
        (b'{"jsonrpc":"2.0","id":9,"result":{', [7, 8], None),
    ],
)
def test_an_unreadable_message_fails_the_caller_it_was_meant_for_and_no_other(
    data: bytes, waiting: list[Any], expected: Any
):
    assert find_answered_request(data, waiting) == expected


@proves("F19")
@given(st.lists(json_values, max_size=6))
def test_whatever_a_server_lists_every_entry_is_kept_or_dropped_with_a_reason(entries: list[Any]):
    intake = DefinitionFilter("s", LimitSettings(), modern=True)
    assert intake.add_page([*entries, {"name": "good", "inputSchema": {"type": "object"}}])
    assert len(intake.kept) + len(intake.dropped) == len(entries) + 1
    assert intake.kept[-1]["name"] == "good"
    assert all(dropped.reason and dropped.name for dropped in intake.dropped)


def test_a_definition_larger_than_allowed_is_dropped():
    intake = DefinitionFilter("s", LimitSettings(definition_bytes=2048), modern=False)
    intake.add_page([{"name": "fat", "description": "x" * 3000, "inputSchema": {"type": "object"}}])
    assert "the limit is 2,048" in intake.dropped[0].reason


def test_an_invalid_header_annotation_drops_the_tool_in_the_modern_era_only():
    tool = {
        "name": "t",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "string", "x-mcp-header": "not a header\r\n"}},
        },
    }
    modern = DefinitionFilter("s", LimitSettings(), modern=True)
    modern.add_page([tool])
    assert "x-mcp-header is invalid" in modern.dropped[0].reason
    old = DefinitionFilter("s", LimitSettings(), modern=False)
    old.add_page([tool])
    assert old.kept == [tool]


@table(
    "schema",
    [
        {},
        True,
        {"type": ["string", "null"]},
        {"type": "array", "items": [{"type": "string"}]},
        {"properties": {"type": {"type": "string"}, "required": {"type": "boolean"}}},
        {"properties": {"a": {"type": "string", "required": True}}},  # draft 3 habits do no harm
        {"$ref": "https://example.org/schema.json"},
        {"anyOf": [{"type": "object"}, False], "additionalProperties": {"type": "integer"}},
    ],
)
def test_sound_schemas_are_left_alone(schema: Any):
    assert find_schema_fault("inputSchema", schema) is None


@table(
    ("schema", "place"),
    [
        ("object", "inputSchema is text"),
        ({"type": "int"}, "inputSchema.type"),
        ({"properties": []}, "inputSchema.properties"),
        ({"properties": {"a": {"items": {"type": 7}}}}, "inputSchema.properties.a.items.type"),
        ({"anyOf": {"type": "string"}}, "inputSchema.anyOf"),
        ({"$defs": {"x": "y"}}, "inputSchema.$defs.x"),
        ({"required": "a"}, "inputSchema.required"),
        ({"enum": "a"}, "inputSchema.enum"),
    ],
)
def test_broken_schemas_are_named_with_the_place(schema: Any, place: str):
    fault = find_schema_fault("inputSchema", schema)
    assert fault is not None
    assert fault.startswith(place)


# Every way from a schema to a schema in it: the place it then has, and how it is put there.
WAYS: dict[str, Callable[[Any], Any]] = {
    "properties.a": lambda part: {"properties": {"b": {"type": "string"}, "a": part}},
    "$defs.x": lambda part: {"$defs": {"x": part}},
    "anyOf": lambda part: {"anyOf": [True, part]},
    "prefixItems": lambda part: {"prefixItems": [part, {"type": "null"}]},
    "items": lambda part: {"type": "array", "items": part},
    "not": lambda part: {"not": part, "description": "any text"},
    "additionalProperties": lambda part: {"type": "object", "additionalProperties": part},
}
BROKEN: tuple[tuple[Any, str], ...] = (
    ({"type": "int"}, ".type"), ({"required": "a"}, ".required"), ({"enum": {}}, ".enum"),
    ({"properties": [1]}, ".properties"), ({"oneOf": {}}, ".oneOf"), ("text", " is text"),
)  # fmt: skip


@given(ways=st.lists(st.sampled_from(sorted(WAYS)), max_size=6), broken=st.sampled_from(BROKEN))
def test_a_fault_is_found_and_named_however_deep_it_is(ways: list[str], broken: tuple[Any, str]):
    sound: Any = {"type": "string", "enum": ["a"], "required": ["b"]}
    schema, where = broken
    for way in reversed(ways):
        sound, schema = WAYS[way](sound), WAYS[way](schema)
    assert find_schema_fault("inputSchema", sound) is None
    fault = find_schema_fault("inputSchema", schema)
    assert fault is not None
    assert fault.startswith(".".join(["inputSchema", *ways]) + where)


ODD: tuple[Any, ...] = ("null", "\ud800", 10**4100, b"", {1: 2}, {"\udc00": 1}, {1}, ("a", 1), object())
anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(10**15, 10**25) | st.floats() | st.text()
    | st.sampled_from(ODD),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(value=anything, around=st.integers(0, 120), depth=st.sampled_from((4, 64, 100)))
@example(value=math.nan, around=2, depth=64)
@example(value=math.nan, around=0, depth=64)
@example(value=[0, math.nan], around=0, depth=64)
@example(value={"type": ["string", "null"]}, around=0, depth=64)
@example(value=10**4100, around=2, depth=64)
@example(value="\ud800", around=2, depth=64)
@example(value="deep", around=70, depth=64)
def test_the_quick_look_at_what_can_be_carried_says_what_the_whole_walk_says(
    value: Any, around: int, depth: int
):
    for level in range(around):
        value = [value] if level % 2 else {"a": value}
    assert find_json_fault(value, max_depth=depth) == find_json_problem(value, max_depth=depth)


@proves("H9", "F29")
@given(
    attempt=st.integers(min_value=1, max_value=10_000),
    pace=st.sampled_from(RetryPace),
    longest=st.floats(min_value=0.01, max_value=3600),
)
def test_a_wait_is_never_longer_than_the_cap(attempt: int, pace: RetryPace, longest: float):
    wait = compute_delay(attempt, pace=pace, max_delay=longest)
    assert 0 < wait <= longest


@proves("H9")
def test_waits_are_spread_and_grow():
    early = {compute_delay(1, pace=RetryPace.SOON, max_delay=60) for _ in range(50)}
    late = [compute_delay(12, pace=RetryPace.SOON, max_delay=60) for _ in range(200)]
    assert len(early) > 10
    assert max(early) <= 0.5
    assert max(late) > 10


def test_a_command_given_as_one_text_is_refused_with_the_right_way():
    with pytest.raises(ConfigError, match="is a list") as caught:
        Server.stdio("time", "mcp-server-time")
    assert 'Server.stdio(\'time\', ["program", "argument"])' in (caught.value.hint or "")


@proves("F49")
def test_a_printed_spec_holds_no_secret():
    spec = Server.http("a", "https://example.org/mcp", headers={"Authorization": "Bearer abcdefgh12345678"})
    assert "abcdefgh" not in repr(spec)
    assert "hunter2" not in repr(Server.stdio("b", ["x"], env={"PASSWORD": "hunter2"}))


@proves("F6")
def test_a_reply_of_millions_of_tiny_values_is_refused_before_it_is_read():
    many = b"[" + b"[]," * MAX_VALUES + b"1]"
    with pytest.raises(InvalidMessage, match="contains more than 5,000,000 values"):
        parse_message(b'{"jsonrpc": "2.0", "id": 1, "result": {"x": ' + many + b"}}")


@proves("S10")
def test_a_log_is_bounded_masked_and_dated_whatever_a_server_writes(tmp_path: Path) -> None:
    secret = b"sk-" + b"q7w8e9r0t1" * 3  # its parts are the value of no variable in other tests
    logs = LogFolder(tmp_path)
    logs.write("git/odd name", b"half a li")
    logs.write("git/odd name", b"ne \x1b[2J with " + secret + b"\nand the re")
    logs.write("git/odd name", b"st")
    for _ in range(100):
        logs.write("flood", b"x" * 99 + b"\n" + b"y" * 50_000 + b"\n")
    logs.write("flood", b"z" * 1_000_000)
    logs.write(None, b"our own\n")
    logs.close()
    odd = get_log_file(tmp_path, "git/odd name")
    assert odd.parent == tmp_path / "servers"
    dated = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")
    first, second = odd.read_text(encoding="utf-8").splitlines()
    assert dated.sub("", first) == "half a line \\x1b[2J with [redacted]"
    assert dated.sub("", second) == "and the rest"
    flood = get_log_file(tmp_path, "flood")
    sizes = [file.stat().st_size for file in flood.parent.glob(f"{flood.name}*")]
    assert sum(sizes) <= 2 * LOG_FILE_BYTES
    assert "bytes were left out of this log" in flood.read_text(encoding="utf-8")
    assert "our own" in get_log_file(tmp_path, None).read_text(encoding="utf-8")
    assert get_log_file(tmp_path, "git odd/name") != odd
