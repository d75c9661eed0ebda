"""Encoders and rerankers of one's own: over real HTTP, with real weights, away and broken."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, cast

import numpy as np
import pytest

from fingerpost.errors import ConfigError, ModelError
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.llm.base import OnText
from fingerpost.narrow.components import build_default_components
from fingerpost.narrow.dense import OnnxEncoder
from fingerpost.narrow.dense.encoder import get_shared_encoder
from fingerpost.narrow.narrower import Narrower
from fingerpost.narrow.remote_models import EndpointEncoder, ModelEndpoint
from fingerpost.narrow.request import NarrowRequest
from fingerpost.records import JsonObject, Narrowing
from fingerpost.settings import Settings
from tests.kit.narrowing import settings_of, snapshot_of, tool
from tests.kit.real_model import NAME, real_model
from tests.requirements import proves

PACKAGE = Path("src/fingerpost/narrow/dense")
TOOLS: Mapping[str, list[JsonObject]] = {
    "mail": [tool("send_message", "Sends an email."), tool("search_messages", "Searches the mailbox.")],
    "sky": [
        tool("get_forecast", "The weather of the coming days."),
        tool("get_tides", "When the sea is high."),
    ],
    "files": [tool(f"tool_{number}", f"Makes a backup of drive {number}.") for number in range(40)],
}
FEW = {name: TOOLS[name] for name in ("mail", "sky")}
REQUEST = "will I need an umbrella on Sunday?"

Answer = Callable[[Mapping[str, Any]], object]


class ModelHost:
    """A server of an encoder and a reranker. `embed` and `rerank` return the body of the reply."""

    def __init__(self, port: int = 0) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        self.keys: set[str | None] = set()
        self.embed: Answer = self.encode
        self.rerank: Answer = lambda body: {"results": []}
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                host.bodies.append(body)
                host.keys.add(self.headers["authorization"])
                reply = host.embed(body) if self.path == "/v1/embeddings" else host.rerank(body)
                status, content = (
                    cast("tuple[int, object]", reply) if isinstance(reply, tuple) else (200, reply)
                )
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]

    @property
    def texts(self) -> list[str]:
        return [text for body in self.bodies for text in body["input"]]

    def encode(self, body: Mapping[str, Any]) -> object:
        encoder = get_shared_encoder()
        vectors = [encoder.encode(text.removeprefix("passage: ")).tolist() for text in body["input"]]
        # Another level and another scale than those of the encoder of the package.
        found = [[*(0.3 * number for number in vector), 0.6] for vector in vectors]
        return {"data": [{"index": place, "embedding": one} for place, one in enumerate(found)][::-1]}


@contextmanager
def open_host(port: int = 0) -> Generator[ModelHost]:
    host = ModelHost(port)
    thread = Thread(target=host.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield host
    finally:
        host.server.shutdown()
        host.server.server_close()
        thread.join()


def build_settings(folder: Path | None = None, **narrow: Any) -> Settings:
    vectors = {} if folder is None else {"vectors": str(folder)}
    return settings_of(
        dense=True,
        store={"url": None},
        flags={"narrow_cache": False},
        narrow={"encoder_seconds": 10, **vectors, **narrow},
    )


@contextmanager
def open_narrower(settings: Settings, tools: Mapping[str, list[JsonObject]] = FEW) -> Generator[Narrower]:
    narrower = Narrower(settings)
    try:
        narrower.prepare(snapshot_of(tools))
        assert narrower.wait_until_ready(30)
        yield narrower
    finally:
        narrower.close()


def rank(narrower: Narrower, text: str = REQUEST) -> list[str]:
    return [one.tool for one in narrower.narrow(NarrowRequest(text=text)).shortlist.candidates]


@pytest.mark.slow
@proves("Q3")
def test_an_embedding_endpoint_compares_meanings_and_its_vectors_are_kept(tmp_path: Path) -> None:
    with open_narrower(build_settings(), TOOLS) as builtin:
        expected = builtin.narrow(NarrowRequest(text=REQUEST)).shortlist
    with open_host() as host:
        settings = build_settings(
            tmp_path,
            encoder=f"openai:http://127.0.0.1:{host.port}/v1#embed",
            encoder_api_key="sk-of-the-encoder",
            encoder_tool_prefix="passage: ",
        )
        with open_narrower(settings, TOOLS) as narrower:
            found = narrower.narrow(NarrowRequest(text=REQUEST)).shortlist
            assert found.dense
            assert found.candidates[0].tool == expected.candidates[0].tool == "sky/get_forecast"
            # Its cosines are brought to the scale of the package's encoder.
            assert found.fit == pytest.approx(expected.fit, abs=0.1)
            meaning = {one.tool: one.score for one in found.candidates[:4]}
            assert meaning == pytest.approx(
                {one.tool: one.score for one in expected.candidates[:4]}, abs=0.05
            )
        tools = [text for text in host.texts if "Makes a backup" in text]
        assert len(tools) == 40
        assert all(text.startswith("passage: files - ") for text in tools)
        assert 1 < max(len(body["input"]) for body in host.bodies) <= 32
        assert host.keys == {"Bearer sk-of-the-encoder"}
        assert "sk-of-the-encoder" not in repr(settings)
        host.bodies.clear()
        with open_narrower(settings, TOOLS) as again:
            assert rank(again)[0] == "sky/get_forecast"
        assert not [text for text in host.texts if "Makes a backup" in text]


@pytest.mark.slow
@proves("Q3")
def test_while_the_encoder_is_away_words_decide_and_then_meaning_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with open_host() as host:
        port = host.port
    settings = build_settings(encoder=f"openai:http://127.0.0.1:{port}/v1#embed")
    with open_narrower(settings) as narrower:
        for text in (REQUEST, "send an email", "search the mailbox"):
            found = narrower.narrow(NarrowRequest(text=text)).shortlist
            assert not found.dense
        assert found.candidates[0].tool == "mail/search_messages"
        assert found.candidates[0].score > 0
        warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
        assert len(warnings) == 1, warnings
        assert "embed at 127.0.0.1 cannot be reached" in warnings[0]
        with open_host(port) as back:
            until = time.monotonic() + 30
            while not narrower.narrow(NarrowRequest(text=REQUEST)).shortlist.dense:
                assert time.monotonic() < until
                time.sleep(0.05)
            assert narrower.wait_until_ready(30)
            assert rank(narrower)[0] == "sky/get_forecast"
            assert back.texts


@pytest.mark.slow
@proves("Q3")
def test_vectors_of_another_model_at_the_same_address_are_computed_again(tmp_path: Path) -> None:
    with open_host() as host:
        settings = build_settings(tmp_path, encoder=f"openai:http://127.0.0.1:{host.port}/v1#embed")
        with open_narrower(settings):
            pass
        whole = host.encode

        def shorten(body: Mapping[str, Any]) -> object:
            reply: Any = whole(body)
            return {"data": [{**one, "embedding": one["embedding"][:300]} for one in reply["data"]]}

        host.embed = shorten
        with open_narrower(settings) as narrower:
            assert not narrower.narrow(NarrowRequest(text=REQUEST)).shortlist.dense
            assert narrower.wait_until_ready(30)
            assert narrower.narrow(NarrowRequest(text=REQUEST)).shortlist.dense


@proves("Q3")
def test_replies_that_are_no_vectors_are_told_and_words_decide() -> None:
    bad: Mapping[str, object] = {
        "not JSON": b"<html>",
        "an error": (500, {"error": "out of memory"}),
        "no data": {"object": "list"},
        "too few": {"data": []},
        "not numbers": {"data": [{"index": 0, "embedding": ["a"]}]},
        "not finite": b'{"data": [{"index": 0, "embedding": [NaN, 1]}]}',
        "nothing": {"data": [{"index": 0, "embedding": [0, 0]}]},
        "a redirect": (302, b""),
    }
    wrong: list[str] = []
    with open_host() as host:
        for name, reply in bad.items():
            host.embed = lambda _, reply=reply: reply
            encoder = EndpointEncoder(ModelEndpoint(f"http://127.0.0.1:{host.port}/v1", "embed"))
            try:
                encoder.encode("a text")
            except ModelError as error:
                wrong += [] if "embed at 127.0.0.1" in str(error) else [f"{name}: {error}"]
            else:
                wrong.append(name)
            encoder.close()
    assert wrong == []


@proves("Q3")
@pytest.mark.process
def test_a_real_server_of_a_language_model_serves_vectors() -> None:
    with real_model(embeddings=True) as address:
        encoder = EndpointEncoder(ModelEndpoint(f"{address}/v1", NAME, seconds=60))
        first, second = encoder.encode_texts(["read a file", "the weather in Oslo"])
        again = encoder.encode("read a file")
        encoder.close()
    assert first.shape == second.shape == (576,)
    assert np.linalg.norm(first) == pytest.approx(1, abs=1e-5)
    assert float(first @ again) > 0.999 > float(first @ second)


@pytest.mark.slow
@proves("Q3")
def test_a_folder_with_an_onnx_model_is_an_encoder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no ONNX model"):
        Narrower(build_settings(encoder=str(tmp_path)))
    with pytest.raises(ConfigError, match="is no address with a model"):
        Narrower(build_settings(encoder="openai:http://127.0.0.1:8080/v1"))
    (tmp_path / "onnx").mkdir()
    shutil.copy(PACKAGE / "routing-encoder.onnx", tmp_path / "onnx" / "model.onnx")
    shutil.copy(PACKAGE / "tokenizer.json", tmp_path / "tokenizer.json")
    with open_narrower(build_settings(encoder=str(tmp_path))) as narrower:
        assert narrower.narrow(NarrowRequest(text=REQUEST)).shortlist.dense
        assert rank(narrower)[0] == "sky/get_forecast"
    (tmp_path / "config_sentence_transformers.json").write_text('{"prompts": {"query": "search: "}}')
    prompted, plain = OnnxEncoder(tmp_path), get_shared_encoder()
    assert np.array_equal(prompted.encode("the weather"), plain.encode("search: the weather"))
    assert np.array_equal(prompted.encode_texts(["the weather"])[0], plain.encode("the weather"))


def prefer(name: str) -> Answer:
    """Rank the texts with this name first. Cohere, Jina and vLLM call them documents."""

    def rerank(body: Mapping[str, Any]) -> object:
        if "documents" not in body:
            return 422, {"detail": "documents is missing"}
        scores = [float(name in text) for text in body["documents"]]
        return {"results": [{"index": place, "relevance_score": one} for place, one in enumerate(scores)]}

    return rerank


def prefer_as_tei(name: str) -> Answer:
    """As Text Embeddings Inference does it."""

    def rerank(body: Mapping[str, Any]) -> object:
        if "texts" not in body:
            return 422, {"error": "missing field `texts`"}
        return [{"index": place, "score": float(name in text)} for place, text in enumerate(body["texts"])]

    return rerank


@proves("Q4")
@pytest.mark.parametrize("serve", [prefer, prefer_as_tei])
def test_a_reranker_orders_close_tools_and_only_those(serve: Callable[[str], Answer]) -> None:
    with open_host() as host:
        host.rerank = serve("drive 17")
        settings = settings_of(narrow={"reranker": f"http://127.0.0.1:{host.port}/v1#rerank"})
        narrower = Narrower(settings)
        narrower.prepare(snapshot_of(TOOLS))
        found = narrower.narrow(NarrowRequest(text="make a backup of drive 17 or 18"))
        assert found.shortlist.candidates[0].tool == "files/tool_17"
        (part,) = [one for one in found.shortlist.candidates[0].parts if one.signal == "reranker"]
        assert part.note == "the reranker puts it at place 1"
        assert len(host.bodies[-1].get("documents") or host.bodies[-1]["texts"]) == 10
        host.bodies.clear()
        assert rank(narrower, "search_messages in the mailbox")[0] == "mail/search_messages"
        assert host.bodies == []


@pytest.mark.slow
@proves("Q4")
def test_a_reranker_that_fails_leaves_the_order(caplog: pytest.LogCaptureFixture) -> None:
    plain = Narrower(settings_of())
    plain.prepare(snapshot_of(TOOLS))
    text = "make a backup of a drive"
    with open_host() as host:
        replies: list[object] = [(500, b""), {"results": []}, b"[", [{"index": 0, "score": None}]]
        for reply in replies:
            host.rerank = lambda _, reply=reply: reply
            narrower = Narrower(settings_of(narrow={"reranker": f"http://127.0.0.1:{host.port}#m"}))
            narrower.prepare(snapshot_of(TOOLS))
            found = narrower.narrow(NarrowRequest(text=text)).shortlist
            assert [one.tool for one in found.candidates] == rank(plain, text)
            assert [one.scorer for one in found.failed_scorers] == ["reranker"]
    assert "the reranker was left out of a request" in caplog.text


class ScriptedModel:
    """A model that gives one reply and keeps what it was asked."""

    name = "scripted"

    def __init__(self, text: str) -> None:
        self.text = text
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        self.requests.append(request)
        return ModelReply(text=self.text, model=self.name)


async def narrow_with_model(model: ScriptedModel | None, text: str) -> Narrowing:
    settings = settings_of(narrow={"reranker": "lite"})
    narrower = Narrower(settings, parts=build_default_components(settings, lite=model))
    return await narrower.narrow_snapshot(snapshot_of(TOOLS), NarrowRequest(text=text))


@proves("Q4")
async def test_the_light_model_can_be_the_reranker() -> None:
    model = ScriptedModel('I think: {"order": [4, 1, 99]}')
    text = "make a backup of a drive"
    found = await narrow_with_model(model, text)
    listed = model.requests[0].messages[1].text
    line = next(line for line in listed.splitlines() if line.startswith("4. "))
    assert found.shortlist.candidates[0].tool.removeprefix("files/").replace("_", " ") in line
    assert text in listed
    refused = await narrow_with_model(ScriptedModel("none of them"), text)
    assert [one.reason for one in refused.shortlist.failed_scorers] == [
        "scripted did not answer with an order of the tools"
    ]
    with pytest.raises(ConfigError, match="there is no model"):
        await narrow_with_model(None, text)
