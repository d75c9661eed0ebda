"""Pictures and speech from elsewhere: real HTTP to a service of the test's own, and a real program."""

from __future__ import annotations

import base64
import json
import stat
import struct
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from fingerpost.records import ErrorKind
from fingerpost.settings import RuleSettings, Settings
from fingerpost.testing import served
from tests.builtin.assets.test_bodies_and_sound import read_wav
from tests.kit.assets import maker, order_asset, place_order
from tests.requirements import proves

KEY = "sk-test-0123456789abcdef0123456789"
PICTURE = b"\x89PNG\r\n\x1a\n" + b"\x00" * 32
SOUND = b"ID3\x04\x00" + b"\x00" * 64


@dataclass
class Service:
    """A service with scripted answers that records its requests."""

    address: str = ""
    answer: Any = None  # what /images/generations gives
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    fetched: list[str] = field(default_factory=list[str])

    async def images(self, request: Request) -> Response:
        assert request.headers["authorization"] == f"Bearer {KEY}"
        self.asked.append(("image", await request.json()))
        if isinstance(self.answer, Response):
            return self.answer
        if self.answer == "never":
            await anyio.sleep_forever()
        return JSONResponse({"data": [self.answer]})

    async def speech(self, request: Request) -> Response:
        self.asked.append(("speech", await request.json()))
        return Response(SOUND, media_type="audio/mpeg")

    async def file(self, request: Request) -> Response:
        self.fetched.append(request.url.path)
        if request.path_params["name"] == "elsewhere":
            return RedirectResponse("/files/picture")
        return Response(PICTURE, media_type="image/png")


@asynccontextmanager
async def service() -> AsyncGenerator[Service]:
    made = Service(answer={"b64_json": base64.b64encode(PICTURE).decode()})
    routes = [
        Route("/v1/images/generations", made.images, methods=["POST"]),
        Route("/v1/audio/speech", made.speech, methods=["POST"]),
        Route("/files/{name}", made.file),
    ]
    async with served(Starlette(routes=routes)) as address:
        made.address = address
        yield made


ALLOWED = RuleSettings(verdict="allow", tool="specialists/use_asset_service")


def endpoint(service: Service, **more: Any) -> dict[str, Any]:
    return {"base_url": f"{service.address}/v1", "api_key": KEY, "model": "painter", **more}


@pytest.mark.slow
@proves("B3", "U13")
async def test_a_picture_is_made_by_the_service_after_an_approval(settings: Settings):
    async with service() as there, maker(settings, images=endpoint(there)) as router:
        waits = await place_order(router, kind="image", prompt="a lighthouse", width=512, height=512)
        assert waits.error is ErrorKind.AUTHORIZATION_REQUIRED and waits.pending_id is not None
        assert there.asked == []
        unsaid = await place_order(router, prompt="a picture of a lighthouse")
        assert not unsaid.success and "Give kind: image" in unsaid.content and there.asked == []
        assert (await place_order(router, kind="chart", data={"a": 1, "b": 2})).success
    allowed = settings.model_copy(update={"policy": (ALLOWED,)})
    async with service() as there, maker(allowed, images=endpoint(there)) as router:
        picture = await order_asset(router, kind="image", prompt="a lighthouse", width=512, height=512)
    assert (picture.name, picture.media_type, picture.data) == ("a-lighthouse.png", "image/png", PICTURE)
    wanted = {"prompt": "a lighthouse", "n": 1, "size": "512x512", "model": "painter"}
    assert there.asked == [("image", wanted)]


@proves("U13")
async def test_an_address_in_a_reply_is_fetched_only_where_the_service_is(settings: Settings):
    allowed = settings.model_copy(update={"policy": (ALLOWED,)})
    async with service() as there, service() as other, maker(allowed, images=endpoint(there)) as router:

        async def ask_for_image(url: str) -> str:
            there.answer = {"url": url}
            return (
                await place_order(router, kind="image", prompt=f"a lighthouse {len(there.asked)}")
            ).content

        inline = base64.b64encode(PICTURE).decode()
        assert "Made a picture" in await ask_for_image(f"{there.address}/files/picture")
        assert "Made a picture" in await ask_for_image(f"data:image/png;base64,{inline}")
        for url in (f"{other.address}/files/picture", "file:///etc/passwd", "http://[::1", "ftp://x/y"):
            assert "another address than its own" in await ask_for_image(url), url
        assert "status 307" in await ask_for_image(f"{there.address}/files/elsewhere")
        assert there.fetched == ["/files/picture", "/files/elsewhere"] and other.fetched == []


@pytest.mark.slow
@proves("U13")
async def test_what_a_service_does_wrong_is_said_without_the_key(settings: Settings):
    allowed = settings.model_copy(update={"policy": (ALLOWED,)})
    async with service() as there, maker(allowed, images=endpoint(there)) as router:
        replies: list[tuple[Any, str]] = [
            (JSONResponse({"error": {"message": f"bad key {KEY}"}}, 401), "Check its api_key"),
            (Response("<h1>no</h1>", 502), "status 502"),
            (Response("nothing"), "nothing that could be understood"),
            ({"b64_json": base64.b64encode(b"<svg onload='x'/>").decode()}, "no picture"),
            ({"revised_prompt": "x"}, "neither a picture"),
            (JSONResponse({"data": [{"b64_json": "A" * 30_000_000}]}), "more than"),
        ]
        for number, (answer, words) in enumerate(replies):
            there.answer = answer
            outcome = await place_order(router, kind="image", prompt=f"a lighthouse {number}")
            assert not outcome.success and words in outcome.content, outcome.content
            assert KEY not in json.dumps([outcome.content, outcome.detail])
    async with service() as there, maker(allowed, images=endpoint(there, timeout=1.5)) as router:
        there.answer = "never"
        outcome = await place_order(router, kind="image", prompt="a lighthouse")
        assert not outcome.success and "did not answer within 1.5 s" in outcome.content, outcome.content
    async with maker(allowed, images={"base_url": "http://127.0.0.1:9/v1"}) as router:
        outcome = await place_order(router, kind="image", prompt="a lighthouse")
        assert not outcome.success and "cannot be reached" in outcome.content, outcome.content


@proves("U13")
async def test_speech_comes_from_the_service_in_its_own_form(settings: Settings):
    allowed = settings.model_copy(update={"policy": (ALLOWED,)})
    async with service() as there, maker(allowed, speech=endpoint(there)) as router:
        speech = await order_asset(router, kind="speech", prompt="Hello there", format="mp3", voice="nova")
    assert (speech.name, speech.media_type, speech.data) == ("hello-there.mp3", "audio/mpeg", SOUND)
    wanted = {"input": "Hello there", "voice": "nova", "response_format": "mp3", "model": "painter"}
    assert there.asked == [("speech", wanted)]


SYNTHESISER = """#!{python}
import struct, sys
text = sys.stdin.read()
assert sys.argv[1:] == ["--stdin", "--stdout", "-v", "en-gb"], sys.argv
samples = struct.pack("<h", len(text)) * 4410
head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 0x7fffffff, b"WAVE", b"fmt ", 16, 1, 1, 44100, 88200, 2, 16,
                   b"data", 0x7fffffff)
sys.stdout.buffer.write(head + samples)
"""


@pytest.mark.process
@proves("U13")
async def test_a_synthesiser_on_this_machine_speaks(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    async with maker(settings) as router:
        failed = await place_order(router, kind="speech", prompt="Hello", voice="en-gb")
        assert not failed.success and "install espeak-ng" in failed.content
        program = tmp_path / "espeak-ng"
        program.write_text(SYNTHESISER.format(python=sys.executable))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        speech = await order_asset(router, kind="speech", prompt="Hello", voice="en-gb")
        odd = await place_order(router, kind="speech", prompt="Hello", voice="--path=/etc/x")
    assert (speech.name, speech.media_type) == ("hello.wav", "audio/wav")
    assert struct.unpack("<I", speech.data[4:8])[0] == len(speech.data) - 8
    seconds, samples = read_wav(speech.data)
    assert seconds == 0.1 and round(samples[0] * 32767) == len("Hello")
    assert not odd.success and "no name of a voice" in odd.content
