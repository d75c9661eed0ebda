"""What a server can really do: found out by asking, noticed in passing, remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.errors import ModelRefused, ModelTimeout, StoreUnavailable
from fingerpost.llm import Capabilities, ModelPool, ModelReply, ModelRequest, ResponseSchema, Role, probe
from fingerpost.llm.capabilities import CapabilityFindings
from fingerpost.records import JsonObject, Message
from fingerpost.settings import ModelSettings, ModelsSettings
from fingerpost.testing import ScriptedModel, calls
from tests.kit.tables import table

HELLO = ModelRequest(messages=(Message(role="user", text="hello"),))
SCHEMA = ResponseSchema(name="n", schema={"type": "object", "required": ["a"]})
TOOL: JsonObject = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
WITH_SCHEMA = ModelRequest(messages=HELLO.messages, schema=SCHEMA)
WITH_TOOLS = ModelRequest(messages=HELLO.messages, tools=(TOOL,), tool_choice="required")
BY_A_CALLER = replace(WITH_TOOLS, choice_is_callers=True)
DAY = 86_400.0
CONFIGURED = ModelsSettings(prime=ModelSettings(model="big", base_url="http://127.0.0.1:9/v1"))


class Memory:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def get(self, key: str) -> bytes | None:
        return self.kept.get(key)

    async def put(self, key: str, value: bytes) -> None:
        self.kept[key] = value


class Broken:
    async def get(self, key: str) -> bytes | None:
        raise StoreUnavailable("locked")

    async def put(self, key: str, value: bytes) -> None:
        raise StoreUnavailable("locked")


def honest(request: ModelRequest) -> ModelReply | str:
    """A server that keeps to what it is asked."""
    if request.schema is not None:
        return '{"word": "fingerpost-7f3a"}'
    return calls(("note_word", {"word": "hello"})) if request.tools else "hello"


def cut(text: str) -> ModelReply:
    return ModelReply(text=text, model="m", finish="length")


async def test_a_server_that_does_both_is_known_to_do_both():
    model = ScriptedModel(honest)
    assert await probe(model) == Capabilities(json_schema=True, tools=True)
    asked, called = model.asked
    assert asked.schema is not None
    assert "fingerpost-7f3a" not in str(asked.messages), "a model told the word would say it by itself"
    assert called.tool_choice == "required"


@table(
    ("script", "found"),
    [
        (["Hello!", "I cannot."], Capabilities(json_schema=False, tools=False)),
        (['{"word": "hello"}', calls(("other", {}))], Capabilities(json_schema=False, tools=False)),
        ([cut("Hmm"), cut("Hmm")], Capabilities()),
        ([ModelTimeout("late", model="m"), ModelRefused("no tools", model="m")], Capabilities(tools=False)),
    ],
)
async def test_what_a_probe_cannot_tell_stays_unknown(
    script: list[str | ModelReply | Exception], found: Capabilities
):
    assert await probe(ScriptedModel(script)) == found


@table(
    ("request_", "replies", "found"),
    [
        (HELLO, ["hi"], Capabilities()),
        (WITH_SCHEMA, ['{"a": 1}'], Capabilities(json_schema=True)),
        (WITH_SCHEMA, ["no"], Capabilities(json_schema=False)),
        (WITH_SCHEMA, ["no", '{"a": 1}'], Capabilities(json_schema=False)),
        (WITH_SCHEMA, ['{"a": 1}', "no"], Capabilities(json_schema=False)),
        (WITH_SCHEMA, [cut('{"a"')], Capabilities()),
        (WITH_TOOLS, ["no"], Capabilities()),
        (WITH_TOOLS, ["no"] * 2, Capabilities()),
        (WITH_TOOLS, ["no"] * 3, Capabilities(tools=False)),
        (WITH_TOOLS, ["no", "no", cut("n")], Capabilities()),
        (WITH_TOOLS, ["no", "no", calls(("other", {})), "no", "no"], Capabilities()),
        (BY_A_CALLER, ["no"] * 9, Capabilities()),
        (WITH_TOOLS, [calls(("look", {}))], Capabilities(tools=True)),
        (WITH_TOOLS, ["no", calls(("look", {}))], Capabilities(tools=True)),
        (WITH_TOOLS, ["no"] * 3 + [calls(("look", {}))], Capabilities(tools=True)),
        (WITH_TOOLS, [calls(("look", {}))] + ["no"] * 4, Capabilities(tools=True)),
    ],
)
async def test_the_pool_notices_in_passing(
    request_: ModelRequest, replies: list[str | ModelReply], found: Capabilities
):
    pool = ModelPool(prime=ScriptedModel(replies))
    for _ in replies:
        await pool.ask(Role.PRIME, request_)
    assert await pool.capabilities(Role.PRIME) == found


async def test_what_is_known_outlives_the_pool_and_is_not_asked_again():
    memory, model = Memory(), ScriptedModel(honest)
    first = ModelPool.of(CONFIGURED, prime=model, memory=memory)
    assert await first.capabilities(Role.PRIME) == Capabilities()
    assert await first.capabilities(Role.PRIME, find_out=True) == Capabilities(json_schema=True, tools=True)
    silent = ScriptedModel([])
    second = ModelPool.of(CONFIGURED, prime=silent, memory=memory)
    assert await second.capabilities(Role.PRIME, find_out=True) == Capabilities(json_schema=True, tools=True)
    assert silent.asked == []
    assert "127.0.0.1" not in "".join(memory.kept), "an address may hold a password"


async def test_a_memory_that_fails_costs_nothing_but_a_probe():
    pool = ModelPool.of(CONFIGURED, prime=ScriptedModel(honest), memory=Broken())
    assert (await pool.ask(Role.PRIME, WITH_SCHEMA)).text
    assert (await pool.capabilities(Role.PRIME, find_out=True)).tools is True


async def test_a_probe_that_learns_nothing_forgets_nothing():
    pool = ModelPool(prime=ScriptedModel([calls(("look", {})), cut(""), cut("")]))
    await pool.ask(Role.PRIME, WITH_TOOLS)
    assert await pool.capabilities(Role.PRIME, find_out=True) == Capabilities(tools=True)


async def test_without_a_model_nothing_is_known():
    assert await ModelPool().capabilities(Role.LITE, find_out=True) == Capabilities()


@pytest.mark.parametrize("name", [None, "another"])
async def test_that_a_model_takes_no_tools_is_believed_for_a_day(name: str | None):
    now = 1_000_000.0
    asked = replace(WITH_TOOLS, model=name)
    pool = ModelPool(prime=ScriptedModel(["no"] * 8), clock=lambda: now)
    for _ in range(3):
        await pool.ask(Role.PRIME, asked)
    now += DAY - 1
    assert (await pool.capabilities(Role.PRIME, model=name)).tools is False
    now += 1
    assert (await pool.capabilities(Role.PRIME, model=name)).tools is None
    for _ in range(2):
        await pool.ask(Role.PRIME, asked)
    assert (await pool.capabilities(Role.PRIME, model=name)).tools is None, "it is counted anew"
    await pool.ask(Role.PRIME, asked)
    assert (await pool.capabilities(Role.PRIME, model=name)).tools is False


async def test_a_restart_does_not_make_it_last_longer():
    now, memory = 1_000_000.0, Memory()
    first = ModelPool.of(CONFIGURED, prime=ScriptedModel(["no"] * 3), memory=memory, clock=lambda: now)
    for _ in range(3):
        await first.ask(Role.PRIME, WITH_TOOLS)
    for later, tools in ((DAY - 1, False), (DAY, None), (-1, None)):
        moment = now + later
        again = ModelPool.of(CONFIGURED, prime=ScriptedModel([]), memory=memory, clock=lambda at=moment: at)
        assert (await again.capabilities(Role.PRIME)).tools is tools
    memory.kept = dict.fromkeys(memory.kept, b'{"json_schema": null, "tools": false}')
    older = ModelPool.of(CONFIGURED, prime=ScriptedModel([]), memory=memory)
    assert (await older.capabilities(Role.PRIME)).tools is None, (
        "as earlier versions kept it, after one reply"
    )


async def test_a_call_from_a_model_that_was_given_no_tools_ends_it():
    pool = ModelPool(prime=ScriptedModel(["no"] * 3 + [calls(("look", {}))]))
    for _ in range(3):
        await pool.ask(Role.PRIME, WITH_TOOLS)
    assert (await pool.capabilities(Role.PRIME)).tools is False
    await pool.ask(Role.PRIME, WITH_SCHEMA)
    assert (await pool.capabilities(Role.PRIME)).tools is None


@table(
    ("text", "tools"),
    [
        ("registry.ollama.ai/library/gemma:2b does not support tools", False),
        ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', False),
        ("tools param requires --jinja flag", False),
        ("No endpoints found that support tool use.", False),
        ("Function calling is not supported by this model", False),
        ("temperature is not supported", None),
        ("tools[0].function.strict is not supported", None),
        ("Tools are not supported together with images", None),
        ("This model does not support tools with a schema", None),
        ("tool_choice: required is not supported", None),
    ],
)
async def test_a_server_that_says_it_takes_no_tools_is_believed_at_once(text: str, tools: bool | None):
    refusal = ModelRefused(f"small refused the request (status 400): {text}", model="small")
    pool = ModelPool(prime=ScriptedModel([refusal, refusal]))
    with pytest.raises(ModelRefused):
        await pool.ask(Role.PRIME, HELLO)
    assert await pool.capabilities(Role.PRIME) == Capabilities()
    with pytest.raises(ModelRefused):
        await pool.ask(Role.PRIME, replace(BY_A_CALLER, tool_choice="auto"))
    assert (await pool.capabilities(Role.PRIME)).tools is tools


@given(
    st.sampled_from([None, True, False]),
    st.sampled_from([None, True, False]),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.binary(max_size=40),
)
def test_findings_survive_being_written_and_junk_is_nothing(
    schema: bool | None, tools: bool | None, since: float | None, junk: bytes
):
    found = CapabilityFindings(json_schema=schema, tools=tools, without_since=since)
    assert CapabilityFindings.from_bytes(found.to_bytes()) == found
    assert CapabilityFindings.from_bytes(b"\x00" + junk) == CapabilityFindings()
