"""What both native adapters have in common: bounds, repetition, errors, streams that break."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import anyio
import pytest
from starlette.responses import JSONResponse, Response

from fingerpost.errors import (
    ConfigError,
    ModelRefused,
    ModelReplyInvalid,
    ModelTimeout,
    ModelUnavailable,
)
from fingerpost.llm import ChatModel, ModelRequest
from fingerpost.llm.native import NativeChat
from fingerpost.records import Message
from fingerpost.settings import ModelSettings
from tests.kit.native_model_server import (
    KEY,
    HangingVendor,
    Vendor,
    block_delta,
    content,
    create_error,
    create_stream,
    message,
    message_events,
    native,
    piece,
    text,
)

HELLO = ModelRequest(messages=(Message(role="user", text="hello"),))
BOTH = pytest.mark.parametrize("provider", ["anthropic", "google"])


def create_reply(provider: str, words: str = "hi there") -> Response:
    return message(text(words)) if provider == "anthropic" else content({"text": words})


def create_stream_events(provider: str, *words: str) -> list[dict[str, Any]]:
    if provider == "anthropic":
        return message_events(*(block_delta(0, type="text_delta", text=word) for word in words))
    return [piece({"text": word}) for word in words] + [piece(finish="STOP")]


@BOTH
async def test_a_reply_comes_whole_or_piece_by_piece(provider: str):
    received: list[str] = []
    vendor = Vendor(
        create_reply(provider), create_stream(create_stream_events(provider, "hi ", "שלום", " \u2028there"))
    )
    async with native(vendor, provider) as client:
        model: ChatModel = client
        whole = await model.complete(HELLO)
        pieces = await model.complete(HELLO, on_text=received.append)
    assert (whole.text, whole.finish) == ("hi there", "stop")
    assert whole.milliseconds > 0
    assert whole.usage is not None
    assert received == ["hi ", "שלום", " \u2028there"]
    assert pieces.text == "".join(received)
    assert (pieces.finish, pieces.model) == ("stop", whole.model)
    assert pieces.usage is not None


@BOTH
async def test_a_server_that_does_not_stream_is_heard_all_the_same(provider: str):
    received: list[str] = []
    async with native(Vendor(create_reply(provider)), provider) as client:
        reply = await client.complete(HELLO, on_text=received.append)
    assert received == ["hi there"]
    assert reply.text == "hi there"


@BOTH
@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_an_overloaded_server_is_asked_again(provider: str, status: int):
    vendor = Vendor(create_error(status, "busy", {"retry-after": "0.01"}), create_reply(provider))
    async with native(vendor, provider) as client:
        assert (await client.complete(HELLO)).text == "hi there"
    assert len(vendor.asked) == 2


@BOTH
async def test_tries_are_counted(provider: str):
    vendor = Vendor(create_error(529, "no capacity", {"retry-after": "0.01"}))
    async with native(vendor, provider, retries=1) as client:
        with pytest.raises(ModelUnavailable, match=r"m-1 is overloaded \(status 529\): no capacity"):
            await client.complete(HELLO)
    assert len(vendor.asked) == 2


async def test_google_says_in_the_body_how_long_to_wait():
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3600s"}]
    vendor = Vendor(create_error(429, "quota", details=details))
    async with native(vendor, "google") as client:
        with pytest.raises(ModelUnavailable, match="quota"):
            await client.complete(HELLO)
    assert len(vendor.asked) == 1


@BOTH
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 307])
async def test_a_refused_request_is_not_repeated(provider: str, status: int):
    vendor = Vendor(create_error(status, f"no: {KEY}", {"location": "http://127.0.0.1:9/"}))
    async with native(vendor, provider) as client:
        with pytest.raises(ModelRefused, match=str(status)) as refusal:
            await client.complete(HELLO)
    assert len(vendor.asked) == 1
    assert KEY not in repr(refusal.value)


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "invalid x-api-key"), (400, "API key not valid. Please pass a valid API key.")],
)
async def test_a_wrong_key_is_called_a_wrong_key(status: int, words: str):
    async with native(Vendor(create_error(status, words)), "google") as client:
        with pytest.raises(ModelRefused) as refusal:
            await client.complete(HELLO)
    assert refusal.value.hint == "Check the model's api_key."


@BOTH
@pytest.mark.parametrize("text", [(), ("so far",)])
async def test_a_stream_that_is_cut_is_no_answer(provider: str, text: tuple[str, ...]):
    cut = create_stream_events(provider, *text)[: -1 if provider == "google" else -2]
    vendor = Vendor(create_stream(cut), create_stream(create_stream_events(provider, "whole")))
    received: list[str] = []
    async with native(vendor, provider) as client:
        if text:
            with pytest.raises(
                ModelUnavailable, match="closed the connection before its answer was complete"
            ):
                await client.complete(HELLO, on_text=received.append)
            assert received == ["so far"]  # what was said is not said again
        else:
            assert (await client.complete(HELLO, on_text=received.append)).text == "whole"
    assert len(vendor.asked) == 1 + (not text)


@BOTH
async def test_an_error_inside_a_stream_is_an_error(provider: str):
    broken = {"type": "error", "error": {"type": "overloaded_error", "message": "too many"}}
    events = [*create_stream_events(provider, "one")[: 3 if provider == "anthropic" else 1], broken]
    async with native(Vendor(create_stream(events)), provider) as client:
        with pytest.raises(ModelUnavailable, match="too many"):
            await client.complete(HELLO, on_text=lambda _: None)


@BOTH
async def test_remarks_and_rubbish_between_events_are_passed_over(provider: str):
    rubbish: list[Any] = [
        b": keep-alive\n\n",
        b"data: nonsense\n\n",
        b"id: 7\nretry: 5\n\n",
        b"data: [1]\n\n",
    ]
    events = [*rubbish, *create_stream_events(provider, "fine"), *rubbish]
    async with native(Vendor(create_stream(events)), provider) as client:
        assert (await client.complete(HELLO, on_text=lambda _: None)).text == "fine"


@BOTH
async def test_a_stream_that_has_said_everything_is_not_waited_for(provider: str):
    vendor = Vendor(create_stream(create_stream_events(provider, "done"), then=15))
    with anyio.fail_after(30):
        async with native(vendor, provider) as client:
            assert (await client.complete(HELLO, on_text=lambda _: None)).text == "done"


@BOTH
@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"<html>Sign in</html>", b"[" * 100_000, b'{"content": 7, "candidates": 7}']
)
async def test_a_reply_that_is_none_is_said_to_be_none(provider: str, body: bytes):
    async with native(Vendor(Response(body, media_type="application/json")), provider) as client:
        with pytest.raises(ModelReplyInvalid, match="m-1 returned an invalid reply"):
            await client.complete(HELLO)


@BOTH
async def test_an_error_with_status_200_is_an_error(provider: str):
    vendor = Vendor(JSONResponse({"error": {"code": 403, "message": "not for you"}}))
    async with native(vendor, provider) as client:
        with pytest.raises(ModelRefused, match="not for you"):
            await client.complete(HELLO)


@BOTH
@pytest.mark.parametrize("streams", [False, True])
async def test_a_huge_reply_is_cut_off_while_reading(provider: str, streams: bool):
    words = ["x" * 9_000] * 10
    huge = (
        create_stream(create_stream_events(provider, *words))
        if streams
        else create_reply(provider, "".join(words))
    )
    received: list[str] = []
    async with native(Vendor(huge), provider, limit=50_000) as client:
        with pytest.raises(ModelReplyInvalid, match=r"more than 50,000 (bytes|characters)"):
            await client.complete(HELLO, on_text=received.append if streams else None)
    assert len(received) == (5 if streams else 0)


@pytest.mark.slow
async def test_a_stream_without_end_that_says_nothing_is_cut_off():
    pings = create_stream([{"type": "ping", "filling": "x" * 10_000}] * 20)
    async with native(Vendor(pings), "anthropic", limit=10_000) as client:
        with pytest.raises(ModelReplyInvalid, match="more than 160,000 bytes"):
            await client.complete(HELLO, on_text=lambda _: None)


@BOTH
async def test_a_compressed_reply_is_not_unpacked(provider: str):
    vendor = Vendor(Response(b"\x1f\x8b", headers={"content-encoding": "gzip"}))
    async with native(vendor, provider) as client:
        with pytest.raises(ModelReplyInvalid, match="compressed"):
            await client.complete(HELLO)
    assert vendor.headers[0]["accept-encoding"] == "identity"


@BOTH
async def test_a_server_that_hangs_is_a_timeout_and_its_connection_is_closed(provider: str):
    vendor = HangingVendor(create_reply(provider))
    async with native(vendor, provider, timeout=1) as client:
        with pytest.raises(ModelTimeout, match="did not answer within 1 s"):
            await client.complete(HELLO)
        with anyio.fail_after(30):
            await vendor.gone.wait()


@BOTH
async def test_cancelling_ends_the_request(provider: str):
    vendor = HangingVendor(create_reply(provider))
    async with native(vendor, provider) as client:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.complete, HELLO)
                await vendor.reached.wait()
                tasks.cancel_scope.cancel()
            await vendor.gone.wait()


@BOTH
async def test_an_address_without_a_server_is_unavailable(provider: str):
    settings = ModelSettings.model_validate(
        {"model": "m", "provider": provider, "base_url": "http://127.0.0.1:9", "retries": 0, "timeout": 20}
    )
    async with NativeChat(settings) as client:
        with pytest.raises(ModelUnavailable, match="m cannot be reached"):
            await client.complete(HELLO)


@pytest.mark.parametrize(
    ("provider", "variable"),
    [("anthropic", "ANTHROPIC_API_KEY"), ("google", "GEMINI_API_KEY"), ("google", "GOOGLE_API_KEY")],
)
async def test_a_key_from_the_environment_goes_to_the_vendor_alone(
    provider: str, variable: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable, "secret-of-the-house")
    vendor = Vendor(create_reply(provider))
    async with native(vendor, provider, api_key=None) as client:
        await client.complete(HELLO)
    assert "secret-of-the-house" not in str(vendor.headers)


@BOTH
async def test_no_key_for_the_vendor_is_a_mistake_in_the_settings(
    provider: str, monkeypatch: pytest.MonkeyPatch
):
    for variable in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    settings = ModelSettings.model_validate({"model": "m", "provider": provider})
    async with NativeChat(settings) as client:
        with pytest.raises(ConfigError, match="no key is configured for the model m"):
            await client.complete(HELLO)


def test_another_provider_is_a_mistake_in_the_settings():
    with pytest.raises(ConfigError, match="its provider is openai"):
        NativeChat(ModelSettings(model="m"))


@BOTH
async def test_a_model_that_thinks_its_limit_away_is_given_room_from_then_on(provider: str):
    if provider == "anthropic":
        starved = message({"type": "thinking", "thinking": "hmm"}, stop="max_tokens")
    else:
        usage = {"promptTokenCount": 3, "thoughtsTokenCount": 300}
        starved = content(finish="MAX_TOKENS", usageMetadata=usage)
    vendor = Vendor(starved, create_reply(provider))
    asked = ModelRequest(messages=HELLO.messages, max_tokens=300)
    async with native(vendor, provider) as client:
        assert (await client.complete(asked)).text == "hi there"
        await client.complete(asked)
    limits = [
        body.get("max_tokens", body.get("generationConfig", {}).get("maxOutputTokens"))
        for body in vendor.asked
    ]
    assert limits == [300, 300 + 8192, 300 + 8192]


@BOTH
async def test_an_answer_that_is_merely_long_is_cut_short_as_asked(provider: str):
    cut = (
        message(text("and so"), stop="max_tokens")
        if provider == "anthropic"
        else content({"text": "and so"}, finish="MAX_TOKENS")
    )
    vendor = Vendor(cut)
    async with native(vendor, provider) as client:
        reply = await client.complete(HELLO)
    assert (reply.text, reply.finish, len(vendor.asked)) == ("and so", "length", 1)


@BOTH
async def test_a_reply_that_declines_is_a_refusal(provider: str):
    silent = message(stop="refusal") if provider == "anthropic" else content(finish="SAFETY")
    async with native(Vendor(silent), provider) as client:
        with pytest.raises(ModelRefused, match="would not answer"):
            await client.complete(HELLO)


async def test_a_blocked_prompt_and_an_unreadable_call_are_errors():
    blocked = JSONResponse({"promptFeedback": {"blockReason": "SAFETY"}})
    async with native(Vendor(blocked), "google") as client:
        with pytest.raises(ModelRefused, match="would not answer"):
            await client.complete(HELLO)
    async with native(Vendor(content(finish="MALFORMED_FUNCTION_CALL")), "google") as client:
        with pytest.raises(ModelReplyInvalid, match="malformed tool call"):
            await client.complete(HELLO)


@BOTH
async def test_what_a_listener_raises_ends_the_request(provider: str):
    def stop(_: str) -> None:
        raise KeyError("enough")

    async with native(Vendor(create_stream(create_stream_events(provider, "a", "b"))), provider) as client:
        with pytest.raises(KeyError, match="enough"):
            await client.complete(HELLO, on_text=stop)


@BOTH
async def test_half_characters_become_whole_ones(provider: str):
    half = (
        {"content": [text("a\ud800b")]}
        if provider == "anthropic"
        else piece({"text": "a\ud800b"}, finish="STOP")
    )
    vendor = Vendor(Response(json.dumps(half), media_type="application/json"))
    async with native(vendor, provider) as client:
        reply = await client.complete(ModelRequest(messages=(Message(role="user", text="\udfff?"),)))
    assert reply.text == "a�b"


@pytest.mark.process
def test_nothing_is_loaded_before_it_is_needed():
    program = "import sys, fingerpost.llm.native; print('httpx2' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50
    )
    assert done.stdout.strip() == "False"
