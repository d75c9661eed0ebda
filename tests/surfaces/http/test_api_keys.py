"""API keys at the gate, with a real store behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio.to_thread
import pytest

from fingerpost.errors import ConfigError
from fingerpost.events import AccessRefused, MemorySink
from fingerpost.records import Effect, Principal, Right, Scope
from fingerpost.settings.model import GatewaySettings
from fingerpost.store import Store
from fingerpost.surfaces.http.access import AccessDenial, Endpoint
from fingerpost.surfaces.http.addresses import AllowedHosts, Authority
from fingerpost.surfaces.http.authenticator import (
    FailedAttempts,
    HttpAuthenticator,
    ProtectedResources,
    ResourceMetadata,
    build_authenticator,
)
from fingerpost.surfaces.http.credentials import ApiKeyCheck, KnownCredential
from tests.kit.clock import Clock
from tests.kit.stores import place_empty_store
from tests.requirements import proves

MCP = Endpoint(path="/mcp", mode="auto")
DAILY = Endpoint(path="/mcp/p/daily", mode="all", profile="daily")
HOST = {"host": "127.0.0.1:8642"}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.open(place_empty_store(tmp_path)) as opened:
        yield opened


@pytest.fixture
def events() -> MemorySink:
    return MemorySink()


def gate_of(store: Store, events: MemorySink, **settings: object) -> HttpAuthenticator:
    bound = f"{settings.get('host', '127.0.0.1')}:8642"
    return build_authenticator(
        GatewaySettings.model_validate(settings), keys=store.keys, events=events, bound=bound
    )


def create_timed_gate(store: Store, events: MemorySink, clock: Clock) -> HttpAuthenticator:
    settings = GatewaySettings(require_key=True)
    return HttpAuthenticator(
        hosts=AllowedHosts(settings, Authority("127.0.0.1", 8642)),
        documents=ResourceMetadata(None, ProtectedResources(settings, bound="127.0.0.1:8642")),
        keys=ApiKeyCheck(store.keys, clock=clock),
        tokens=None,
        events=events,
        local=None,
        failures=FailedAttempts(clock=clock),
    )


async def status(
    gate: HttpAuthenticator, endpoint: Endpoint = MCP, *, remote: str = "", **headers: str
) -> int:
    """200 for a caller that is let in, else the status of the refusal."""
    given = {**HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
    answer = await gate.authenticate(given, endpoint, remote=remote)
    return answer.status if isinstance(answer, AccessDenial) else 200


@proves("G10")
async def test_local_callers_need_no_key_but_a_wrong_one_is_refused(store: Store, events: MemorySink) -> None:
    gate = gate_of(store, events)
    assert await gate.authenticate(HOST, MCP) == Principal(
        name="local", kind="local", rights=(Right.USE, Right.WATCH)
    )
    assert await status(gate, authorization="Bearer nonsense") == 401
    assert await status(gate, authorization="Basic bWU6c2VjcmV0") == 401
    assert await status(gate, authorization="") == 401
    assert await status(gate, x_api_key="") == 401


@proves("G10")
@pytest.mark.parametrize("name", ["x-forwarded-for", "forwarded", "x-real-ip", "via"])
async def test_a_caller_through_a_proxy_is_not_local(store: Store, events: MemorySink, name: str) -> None:
    answer = await gate_of(store, events).authenticate({**HOST, name: "203.0.113.9"}, MCP)
    assert isinstance(answer, AccessDenial)
    assert answer.status == 401


@proves("G10")
@pytest.mark.parametrize(
    "settings",
    [
        {"require_key": True},
        {"host": "0.0.0.0"},
        {"host": "192.168.1.4"},
        {"public_url": "https://tools.example"},
        {"allowed_origins": ("*",)},  # any page in the user's browser could use the tools
        {"allowed_origins": ("https://*",)},
    ],
)
async def test_elsewhere_a_key_is_always_needed(
    store: Store, events: MemorySink, settings: dict[str, object]
) -> None:
    gate = gate_of(store, events, **settings)
    _, key = await store.keys.add("laptop")
    refused = await gate.authenticate(HOST, MCP)
    assert isinstance(refused, AccessDenial)
    assert refused.status == 401
    assert refused.headers == (("www-authenticate", 'Bearer realm="fingerpost"'),)
    assert "X-API-Key" in refused.message
    assert await status(gate, authorization=f"Bearer {key}") == 200
    assert await status(gate, authorization=f"bearer   {key}") == 200
    assert await status(gate, x_api_key=key) == 200
    assert gate.get_public_documents() == {}


@proves("G10")
async def test_a_named_host_that_is_allowed_is_not_this_machine(store: Store, events: MemorySink) -> None:
    gate = gate_of(store, events, allowed_hosts=("tools.lan",))
    answer = await gate.authenticate({"host": "tools.lan"}, MCP)
    assert isinstance(answer, AccessDenial)
    assert answer.status == 401


@proves("G10")
async def test_a_key_brings_its_scope_and_opens_only_its_profiles(store: Store, events: MemorySink) -> None:
    scope = Scope(servers=("git",), effects=(Effect.READ,))
    _, key = await store.keys.add("ci", scope=scope, profiles=("daily",))
    gate = gate_of(store, events)
    admitted = await gate.authenticate({**HOST, "x-api-key": key}, DAILY)
    assert admitted == Principal(name="ci", kind="key", scope=scope, profiles=("daily",))
    refused = await gate.authenticate({**HOST, "x-api-key": key}, MCP)
    assert isinstance(refused, AccessDenial)
    assert refused.status == 403
    assert 'error="insufficient_scope"' in dict(refused.headers)["www-authenticate"]
    listed = [event for event in events.events if isinstance(event, AccessRefused)]
    assert [(event.endpoint, event.principal) for event in listed] == [("/mcp", "ci")]


@proves("G10")
async def test_unknown_revoked_and_mistyped_keys_are_told_the_same_and_leave_no_trace_of_themselves(
    store: Store, events: MemorySink
) -> None:
    _, revoked = await store.keys.add("old")
    await store.keys.revoke("old")
    _, good = await store.keys.add("new")
    gate = gate_of(store, events)
    wrong = (
        revoked,
        good[:-1] + ("x" if good[-1] != "x" else "y"),
        "fp_" + "0" * 32 + "_" + "A" * 43,
        "héllo",
    )
    answers = {await gate.authenticate({**HOST, "x-api-key": key}, MCP) for key in wrong}
    assert len(answers) == 1
    listed = "".join(str(event) for event in events.events)
    assert not any(key in listed for key in (*wrong, good[-43:]))
    assert len(events.events) == len(wrong)


@proves("G10")
async def test_a_revoked_key_is_refused_within_five_seconds_and_until_then_not_looked_up(
    store: Store, events: MemorySink
) -> None:
    clock = Clock()
    gate = create_timed_gate(store, events, clock)
    _, key = await store.keys.add("laptop")
    assert await status(gate, x_api_key=key) == 200
    await store.keys.revoke("laptop")
    clock.now += 1
    assert await status(gate, x_api_key=key) == 200  # remembered
    clock.now += 4
    assert await status(gate, x_api_key=key) == 401


@proves("G10")
async def test_a_key_in_constant_use_is_looked_up_again_by_one_request_in_three_seconds(store: Store) -> None:
    clock = Clock()
    check = ApiKeyCheck(store.keys, clock=clock)
    _, key = await store.keys.add("laptop")
    assert isinstance(await check.check_credential(key), KnownCredential)
    clock.now += 3.5
    assert [check.get_cached(key) is None for _ in range(3)] == [True, False, False]  # the first one looks
    clock.now += 1.5
    assert check.get_cached(key) is None  # the check failed: no caller is let in on old knowledge


@proves("G10")
async def test_who_guesses_has_to_wait_and_others_do_not(store: Store, events: MemorySink) -> None:
    clock = Clock()
    gate = create_timed_gate(store, events, clock)
    _, key = await store.keys.add("laptop")
    _, other = await store.keys.add("desk")
    assert await status(gate, x_api_key=key, remote="10.0.0.1") == 200
    statuses = [await status(gate, x_api_key=f"guess{n}", remote="10.0.0.1") for n in range(30)]
    assert statuses == [401] * 20 + [429] * 10
    # Behind a proxy all callers have this address: a valid key is let in, known before or not.
    assert await status(gate, x_api_key=other, remote="10.0.0.1") == 200
    assert await status(gate, x_api_key=key, remote="10.0.0.1") == 200
    assert await status(gate, x_api_key=f"{other}x", remote="10.0.0.1") == 429
    assert await status(gate, x_api_key="guess", remote="10.0.0.2") == 401
    assert len(events.events) == 21  # and the audit trail does not grow without end
    clock.now += 61
    assert await status(gate, x_api_key="guess", remote="10.0.0.1") == 401


@proves("G10")
async def test_when_a_key_was_used_is_remembered(store: Store, events: MemorySink, tmp_path: Path) -> None:
    made, key = await store.keys.add("laptop")
    gate = gate_of(store, events)
    for _ in range(3):
        assert await status(gate, x_api_key=key) == 200
    await store.keys.add("behind")  # writes follow one another: the use is on disk when this is
    assert [kept.last_used is not None for kept in await store.keys.list_all() if kept.name == made.name] == [
        True
    ]


@proves("G11", "F50")
async def test_a_foreign_host_is_refused_before_anything_else_and_it_is_audited(
    store: Store, events: MemorySink
) -> None:
    _, key = await store.keys.add("laptop")
    gate = gate_of(store, events)
    answer = await gate.authenticate({"host": "evil.example", "x-api-key": key}, MCP)
    assert isinstance(answer, AccessDenial)
    assert answer.status == 403
    assert "allowed_hosts" in answer.message
    assert events.events[0].audited
    assert "evil" not in answer.message  # nothing of the caller's input is repeated


@pytest.mark.parametrize(
    "settings",
    [{"public_url": "tools.example"}, {"public_url": "ftp://x"}, {"allowed_hosts": ("http://x/y",)}],
)
async def test_settings_that_mean_nothing_are_said_so(
    store: Store, events: MemorySink, settings: dict[str, object]
) -> None:
    with pytest.raises(ConfigError):
        gate_of(store, events, **settings)


def spoil(folder: Path) -> None:
    for file in folder.glob("store.db*"):
        file.write_bytes(b"this is no database" * 400)


async def test_a_store_that_fails_is_not_a_wrong_key(tmp_path: Path, events: MemorySink) -> None:
    async with Store.open(place_empty_store(tmp_path)) as store:
        _, key = await store.keys.add("laptop")
        gate = gate_of(store, events, require_key=True)
        await anyio.to_thread.run_sync(spoil, tmp_path)
        assert await status(gate, x_api_key=key) == 503
