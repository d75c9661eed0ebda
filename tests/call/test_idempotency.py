"""Idempotency keys: the same key and the same call run once, on every surface that makes single calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio

from fingerpost import Router, Settings
from fingerpost.call.build import compute_call_fingerprint
from fingerpost.records import Decision, ErrorKind, KeyedCall, Outcome, utc_now
from fingerpost.testing import ToolServer, tool_server
from tests.kit.api import open_served_api as served
from tests.kit.gateway_methods import open_gateway_methods as gateway
from tests.kit.gateway_methods import text_of
from tests.kit.stores import place_empty_store
from tests.requirements import proves

ALLOW: Any = [{"verdict": "allow", "server": "*"}]
PAY = {"to": "dana", "amount": 5}


def bank(call: Any = None) -> ToolServer:
    """Every payment is another: its answer counts them."""
    made: list[Any] = []

    async def pay(_: str, arguments: dict[str, Any]) -> str:
        made.append(arguments)
        return f"payment {len(made)}"

    return tool_server("bank", ["pay"], call=call or pay)


@asynccontextmanager
async def open_bank_router(folder: Path, server: ToolServer, **settings: Any) -> AsyncGenerator[Router]:
    chosen = Settings.model_validate(
        {"store": {"url": place_empty_store(folder, "s.db")}, "policy": ALLOW, **settings}
    )
    async with Router([server.spec()], settings=chosen) as router:
        await router.connect()
        yield router


def first_of(outcome: Outcome) -> Any:
    """The call whose outcome this is; None: its own."""
    replayed: Any = outcome.metadata.get("replayed")
    return None if replayed is None else replayed["call_id"]


@proves("C4")
async def test_the_same_call_with_the_same_key_runs_once_and_says_so_also_after_a_restart(
    tmp_path: Path,
) -> None:
    server = bank()
    async with open_bank_router(tmp_path, server) as router:
        first = await router.call("bank/pay", PAY, caller="noa", idempotency_key="k1")
        again = await router.call("pay", PAY, caller="noa", idempotency_key="k1")
        assert (again.content, first_of(first), first_of(again)) == ("payment 1", None, first.call_id)
        assert again.call_id != first.call_id
        assert again.attempts == ()
    async with open_bank_router(tmp_path, server) as router:
        later = await router.call("bank/pay", PAY, caller="noa", idempotency_key="k1")
        assert (later.content, later.result, first_of(later)) == ("payment 1", first.result, first.call_id)
        # Another key, another caller and no key are other calls.
        assert (await router.call("bank/pay", PAY, caller="noa", idempotency_key="k2")).content == "payment 2"
        assert (await router.call("bank/pay", PAY, caller="tal", idempotency_key="k1")).content == "payment 3"
        assert (await router.call("bank/pay", PAY, caller="noa")).content == "payment 4"


async def test_the_same_key_for_another_call_is_an_error_and_nothing_runs(tmp_path: Path) -> None:
    server = bank()
    async with open_bank_router(tmp_path, server) as router:
        await router.call("bank/pay", PAY, idempotency_key="k1")
        other = await router.call("bank/pay", {**PAY, "amount": 6}, idempotency_key="k1")
        assert other.error is ErrorKind.INVALID_PARAMETERS
        assert "idempotency key was used" in other.content
        empty = await router.call("bank/pay", PAY, idempotency_key="")
        assert empty.error is ErrorKind.INVALID_PARAMETERS
    assert len(server.calls) == 1


async def test_of_many_at_once_with_one_key_one_runs_and_all_get_its_result(tmp_path: Path) -> None:
    release = anyio.Event()

    async def pay(*_: object) -> str:
        await release.wait()
        return "paid"

    server = bank(call=pay)
    done: list[Outcome] = []
    async with open_bank_router(tmp_path, server) as router:

        async def call() -> None:
            done.append(await router.call("bank/pay", PAY, conversation="talk", idempotency_key="k1"))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(call)
                while not server.calls:  # noqa: ASYNC110 - the server sets no event
                    await anyio.sleep(0.01)
                release.set()
    assert len(server.calls) == 1
    assert [outcome.content for outcome in done] == ["paid"] * 5
    assert sum(first_of(outcome) is None for outcome in done) == 1


async def test_a_failed_call_may_be_made_again_under_its_key(tmp_path: Path) -> None:
    tries: list[int] = []

    async def pay(*_: object) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("no money")
        return "paid"

    async with open_bank_router(tmp_path, bank(call=pay)) as router:
        assert (await router.call("bank/pay", PAY, idempotency_key="k1")).error is ErrorKind.EXECUTION_FAILED
        assert (await router.call("bank/pay", PAY, idempotency_key="k1")).content == "paid"
        assert first_of(await router.call("bank/pay", PAY, idempotency_key="k1")) is not None


async def test_a_call_whose_outcome_is_unknown_is_not_repeated_under_its_key(tmp_path: Path) -> None:
    async def pay(*_: object) -> str:
        await anyio.sleep_forever()
        return ""

    server = bank(call=pay)
    async with open_bank_router(tmp_path, server) as router:
        first = await router.call("bank/pay", PAY, idempotency_key="k1", seconds=0.2)
        assert first.error is ErrorKind.UNKNOWN
        again = await router.call("bank/pay", PAY, idempotency_key="k1")
        assert again.error is ErrorKind.UNKNOWN
        assert "nothing was run now" in again.content
        # The process of this one died: its end is on no record.
        now = utc_now()
        same = compute_call_fingerprint("", "bank/pay", PAY)
        later = now + timedelta(hours=1)
        dead = KeyedCall(caller="", key="k2", call_fingerprint=same, tool="bank/pay", call_id="cal_dead",
                         began=now, expires=later)  # fmt: skip
        assert await router.store.idempotency.claim(dead) is None
        lost = await router.call("bank/pay", PAY, idempotency_key="k2", seconds=0.2)
        assert lost.error is ErrorKind.UNKNOWN
    assert len(server.calls) == 1


async def test_who_lost_the_connection_comes_back_with_the_key_for_the_result(tmp_path: Path) -> None:
    began, release = anyio.Event(), anyio.Event()

    async def pay(*_: object) -> str:
        began.set()
        await release.wait()
        return "paid"

    server = bank(call=pay)
    async with open_bank_router(tmp_path, server) as router:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: router.call("bank/pay", PAY, idempotency_key="k1"))
                await began.wait()
                tasks.cancel_scope.cancel()
            release.set()
            back = await router.call("bank/pay", PAY, idempotency_key="k1")
    assert back.content == "paid"
    assert first_of(back) is not None
    assert len(server.calls) == 1


async def test_a_key_holds_from_the_approval_to_the_result(tmp_path: Path) -> None:
    server = bank()
    async with open_bank_router(tmp_path, server, policy=[]) as router:
        waits = await router.call("bank/pay", PAY, idempotency_key="k1")
        assert waits.pending_id is not None
        await router.calls.decide(waits.pending_id, Decision.APPROVED, by="dana")
        assert (await router.resume_call(waits.pending_id)).content == "payment 1"
        again = await router.call("bank/pay", PAY, idempotency_key="k1")
    assert (again.content, first_of(again)) == ("payment 1", waits.call_id)
    assert len(server.calls) == 1


async def test_over_the_api_the_key_is_in_the_header_or_the_body(tmp_path: Path) -> None:
    server = bank()
    body: dict[str, Any] = {"tool": "bank/pay", "arguments": PAY}
    async with served(tmp_path, server.spec(), policy=ALLOW) as it:
        first = (await it.post("/api/call", body, headers={"Idempotency-Key": '"k1"'})).json()
        again = (await it.post("/api/call", {**body, "idempotency_key": "k1"})).json()
        assert again["metadata"]["replayed"]["call_id"] == first["call_id"]
        trace = (await it.get(f"/api/packets/{again['call_id']}")).json()
        assert "call_replayed" in {event["kind"] for event in trace["events"]}
        stranger = await it.post("/api/call", {**body, "idempotency_key": "k1"}, headers=await it.key("tal"))
        assert "replayed" not in stranger.json()["metadata"]
        two = await it.post("/api/call", {**body, "idempotency_key": "k2"}, headers={"Idempotency-Key": "k1"})
        assert two.status_code == 400
    assert len(server.calls) == 2


async def test_over_mcp_the_key_is_in_the_meta_of_the_request_and_the_result_says_whose_it_is(
    tmp_path: Path,
) -> None:
    server = bank()
    meta = {"_meta": {"fingerpost/idempotency-key": "k1"}}
    async with gateway(tmp_path, server.spec(), policy=ALLOW) as it:
        first = await it.ask("tools/call", {"name": "bank__pay", "arguments": PAY, **meta})
        again = await it.ask("tools/call", {"name": "bank__pay", "arguments": PAY, **meta})
        assert text_of(again) == text_of(first)
        assert again["_meta"]["fingerpost/replayed"]["call_id"] == first["_meta"]["fingerpost/call"]
    assert len(server.calls) == 1
