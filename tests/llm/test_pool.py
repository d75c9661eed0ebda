"""The pool: who answers, who stands in, what it costs."""

from __future__ import annotations

from urllib.parse import urlsplit

import psutil
import pytest

from fingerpost.errors import (
    ConfigError,
    ModelError,
    ModelRefused,
    ModelReplyInvalid,
    ModelTimeout,
    ModelUnavailable,
)
from fingerpost.llm import ModelPool, ModelRequest, ModelUsage, Role
from fingerpost.records import Message
from fingerpost.settings import ModelSettings, ModelsSettings
from fingerpost.testing import ScriptedModel, served
from tests.kit.model_server import ModelServer, chunk, create_error, create_reply, events
from tests.kit.tables import table
from tests.requirements import proves

HELLO = ModelRequest(messages=(Message(role="user", text="hello"),))


def count_connections(*addresses: str) -> int:
    """Connections of this process as a client of these servers."""
    ports = {urlsplit(address).port for address in addresses}
    ours = psutil.Process().net_connections("tcp")
    return sum(
        one.status == psutil.CONN_ESTABLISHED and bool(one.raddr) and one.raddr.port in ports for one in ours
    )


def create_model_error(kind: type[ModelError], name: str = "small") -> ModelError:
    return kind(f"{name} is out", model=name, hint="Wait.")


@proves("A7")
async def test_each_role_is_answered_by_its_model():
    pool = ModelPool(lite=ScriptedModel(["l"], name="small"), prime=ScriptedModel(["p"], name="big"))
    assert pool.ready
    assert (pool.name(Role.LITE), pool.name(Role.PRIME)) == ("small", "big")
    for role, text in ((Role.LITE, "l"), (Role.PRIME, "p")):
        reply = await pool.ask(role, HELLO)
        assert (reply.text, reply.stood_in) == (text, False)


@proves("A7")
@pytest.mark.parametrize("role", list(Role))
async def test_a_single_model_answers_for_both_roles(role: Role):
    pool = ModelPool(lite=ScriptedModel(["a", "b"], name="one"))
    assert pool.name(role) == "one"
    assert (await pool.ask(role, HELLO)).stood_in is (role is Role.PRIME)
    pool = ModelPool(prime=ScriptedModel(["a", "b"], name="one"))
    assert (await pool.ask(role, HELLO)).stood_in is (role is Role.LITE)


@proves("A7", "W6")
@table("kind", [ModelUnavailable, ModelTimeout, ModelRefused])
@table("role", list(Role))
async def test_the_other_stands_in_for_one_that_fails(role: Role, kind: type[ModelError]):
    fails, works = ScriptedModel([create_model_error(kind)]), ScriptedModel(["here I am"], name="big")
    pool = ModelPool(lite=fails, prime=works) if role is Role.LITE else ModelPool(lite=works, prime=fails)
    pieces = list[str]()
    reply = await pool.ask(role, HELLO, on_text=pieces.append)
    assert (reply.text, reply.stood_in, reply.model) == ("here I am", True, "big")
    assert "".join(pieces) == "here I am"


async def test_a_reply_that_makes_no_sense_is_for_the_asker_to_deal_with():
    other = ScriptedModel(["never"])
    with pytest.raises(ModelReplyInvalid):
        await ModelPool(lite=ScriptedModel([create_model_error(ModelReplyInvalid)]), prime=other).ask(
            Role.LITE, HELLO
        )
    assert other.asked == []


async def test_when_both_fail_the_first_error_names_the_second():
    lite = ScriptedModel([create_model_error(ModelTimeout)])
    prime = ScriptedModel([create_model_error(ModelRefused, "big")], name="big")
    with pytest.raises(ModelTimeout) as failure:
        await ModelPool(lite=lite, prime=prime).ask(Role.LITE, HELLO)
    assert str(failure.value) == "small is out; big, the fallback model, failed too: big is out"
    assert (failure.value.model, failure.value.hint) == ("small", "Wait.")
    assert isinstance(failure.value.__cause__, ModelRefused)


async def test_a_model_does_not_stand_in_for_itself():
    both = ScriptedModel([create_model_error(ModelUnavailable), "never"])
    with pytest.raises(ModelUnavailable) as failure:
        await ModelPool(lite=both, prime=both).ask(Role.LITE, HELLO)
    assert (str(failure.value), len(both.asked)) == ("small is out", 1)


async def test_there_is_no_fallback_once_text_was_delivered():
    model, other, pieces = (
        ModelServer(events(chunk("Hel"), done=False)),
        ScriptedModel(["never"]),
        list[str](),
    )
    async with served(model.app) as address:
        settings = ModelsSettings(prime=ModelSettings(model="tiny", base_url=f"{address}/v1"))
        pool = ModelPool.of(settings, lite=other)
        with pytest.raises(ModelUnavailable, match="closed the connection"):
            await pool.ask(Role.PRIME, HELLO, on_text=pieces.append)
        await pool.aclose()
    assert (pieces, other.asked) == (["Hel"], [])


@proves("A7")
async def test_models_come_from_the_settings_and_stand_in_over_the_wire():
    busy, well = (
        ModelServer(create_error(503, "loading", {"retry-after": "0.01"})),
        ModelServer(create_reply("at your service")),
    )
    async with served(busy.app) as first, served(well.app) as second:
        pool = ModelPool.of(
            ModelsSettings(
                lite=ModelSettings(model="small", base_url=f"{first}/v1", retries=1),
                prime=ModelSettings(model="big", base_url=f"{second}/v1", context=4096),
            )
        )
        reply = await pool.ask(Role.LITE, HELLO)
        assert (reply.text, reply.stood_in) == ("at your service", True)
        assert (len(busy.asked), len(well.asked)) == (2, 1)
        assert (pool.window(Role.LITE), pool.window(Role.PRIME)) == (32_768, 4096)
        assert count_connections(first, second) > 0
        await pool.aclose()
        assert count_connections(first, second) == 0


async def test_without_a_model_nothing_is_ready_and_asking_says_what_to_set():
    pool = ModelPool.of(ModelsSettings())
    assert not pool.ready
    assert (pool.name(Role.PRIME), pool.cost(Role.PRIME, usage(1, 1))) == ("", None)
    with pytest.raises(ConfigError, match="no model is configured") as failure:
        await pool.ask(Role.PRIME, HELLO)
    assert "models.prime" in str(failure.value.hint)


def usage(prompt: int, completion: int) -> ModelUsage:
    return ModelUsage(prompt_tokens=prompt, completion_tokens=completion)


def test_a_reply_costs_what_the_model_that_gave_it_costs():
    lite = ModelSettings(model="small", price_in=1, price_out=2)
    pool = ModelPool.of(
        ModelsSettings(lite=lite, prime=ModelSettings(model="big", price_in=10, price_out=30))
    )
    assert pool.cost(Role.LITE, usage(1_000_000, 500_000)) == 2.0
    assert pool.cost(Role.LITE, usage(1_000_000, 500_000), stood_in=True) == 25.0
    assert pool.cost(Role.PRIME, None) is None
    alone = ModelPool.of(ModelsSettings(lite=lite))
    assert alone.cost(Role.PRIME, usage(1_000_000, 0), stood_in=True) == 1.0
    assert ModelPool(lite=ScriptedModel([])).cost(Role.LITE, usage(1, 1)) is None


def test_a_given_model_takes_the_place_the_window_and_the_prices_of_the_configured_one():
    settings = ModelsSettings(prime=ModelSettings(model="big", context=1000, price_in=1, price_out=1))
    pool = ModelPool.of(settings, prime=ScriptedModel([], name="mine"))
    assert (pool.name(Role.PRIME), pool.window(Role.PRIME)) == ("mine", 1000)
    assert pool.cost(Role.PRIME, usage(500_000, 500_000)) == 1.0


async def test_two_roles_with_the_same_settings_share_one_model():
    model = ModelServer(create_error(401, "who are you?"))
    async with served(model.app) as address:
        same = ModelSettings(model="one", base_url=f"{address}/v1")
        pool = ModelPool.of(ModelsSettings(lite=same, prime=same))
        with pytest.raises(ModelRefused, match=r"^one refused"):
            await pool.ask(Role.LITE, HELLO)
        await pool.aclose()
    assert len(model.asked) == 1
