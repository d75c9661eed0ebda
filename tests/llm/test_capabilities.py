"""What a server can really do: found out by asking, noticed in passing, remembered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.errors import ModelRefused, ModelTimeout, StoreUnavailable
from fingerpost.llm import Capabilities, ModelPool, ModelReply, ModelRequest, ResponseSchema, Role, probe
from fingerpost.records import JsonObject, Message
from fingerpost.settings import ModelSettings, ModelsSettings
from fingerpost.testing import ScriptedModel, calls

HELLO = ModelRequest(messages=(Message(role="user", text="hello"),))
SCHEMA = ResponseSchema(name="n", schema={"type": "object", "required": ["a"]})
TOOL: JsonObject = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
WITH_SCHEMA = ModelRequest(messages=HELLO.messages, schema=SCHEMA)
WITH_TOOLS = ModelRequest(messages=HELLO.messages, tools=(TOOL,), tool_choice="required")
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("request_", "replies", "found"),
    [
        (HELLO, ["hi"], Capabilities()),
        (WITH_SCHEMA, ['{"a": 1}'], Capabilities(json_schema=True)),
        (WITH_SCHEMA, ["no"], Capabilities(json_schema=False)),
        (WITH_SCHEMA, ["no", '{"a": 1}'], Capabilities(json_schema=False)),
        (WITH_SCHEMA, ['{"a": 1}', "no"], Capabilities(json_schema=False)),
        (WITH_SCHEMA, [cut('{"a"')], Capabilities()),
        (WITH_TOOLS, ["no"], Capabilities(tools=False)),
        (WITH_TOOLS, [calls(("look", {}))], Capabilities(tools=True)),
        (WITH_TOOLS, ["no", calls(("look", {}))], Capabilities(tools=True)),
        (WITH_TOOLS, [calls(("look", {})), "no"], Capabilities(tools=True)),
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


@given(st.sampled_from([None, True, False]), st.sampled_from([None, True, False]), st.binary(max_size=40))
def test_capabilities_survive_being_written_and_junk_is_nothing(
    schema: bool | None, tools: bool | None, junk: bytes
):
    known = Capabilities(json_schema=schema, tools=tools)
    assert Capabilities.from_bytes(known.to_bytes()) == known
    assert Capabilities.from_bytes(b"\x00" + junk) == Capabilities()
