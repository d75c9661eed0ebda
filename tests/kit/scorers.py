"""Small catalogs and an encoder one can watch, for the tests of the scorers."""

from __future__ import annotations

import hashlib
from threading import Event, Lock

import numpy as np

from fingerpost.catalog import Catalog
from fingerpost.events import MemorySink
from fingerpost.narrow.dense import DenseScorer
from fingerpost.narrow.dense.encoder import DIMENSIONS, Vector
from fingerpost.narrow.lexical_scorer import LexicalScorer
from fingerpost.narrow.scorer import ScorerRequest
from fingerpost.records import Json, Listing, Signals, ToolCard
from fingerpost.settings.model import FlagSettings


def tool(name: str, description: str = "", **parameters: str) -> dict[str, Json]:
    properties: dict[str, Json] = {
        parameter: {"type": "string", "description": about} for parameter, about in parameters.items()
    }
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties},
    }


def cards(**servers: list[dict[str, Json]]) -> tuple[ToolCard, ...]:
    """The cards of these servers, as the catalog makes them."""
    catalog = Catalog(events=MemorySink(), flags=FlagSettings(scan_definitions=False))
    for name, definitions in servers.items():
        catalog.replace_server(Listing(server=name, definitions=tuple(definitions)))
    return catalog.snapshot.cards


EVERYDAY = cards(
    weather=[
        tool("get_forecast", "The weather forecast of the coming days for a city.", city="Name of the city"),
        tool("getAirQuality", "How clean the air of a city is now.", city="Name of the city"),
    ],
    gmail=[
        tool(
            "send_message", "Sends an email.", to="Who gets it", subject="What it is about", body="The text"
        ),
        tool("search_messages", "Searches the mailbox.", query="What to look for"),
    ],
    github=[
        tool(
            "create_issue", "Opens a new issue in a repository.", repository="Where", title="In a few words"
        ),
        tool("list_pull_requests", "Lists the pull requests of a repository.", repository="Which one"),
        tool("delete_branch", "Deletes a branch of a repository.", branch="Which one"),
    ],
    files=[
        tool("read_file", "Reads a file from the disk.", path="Where it is"),
        tool("write_file", "Writes text to a file, creating it if needed.", path="Where", content="What"),
    ],
    browser=[tool("open_page", "Navigates to a web page and gives its text.", url="The address")],
)


def ask(text: str, *, gloss: str = "", language: str = "en") -> ScorerRequest:
    return ScorerRequest(text=text, signals=Signals(language=language, gloss=gloss))


def best(scorer: LexicalScorer | DenseScorer, tools: tuple[ToolCard, ...], query: ScorerRequest | str) -> str:
    """The key of the tool with the highest score."""
    scores = scorer.scores(ask(query) if isinstance(query, str) else query, tools)
    return tools[int(np.nanargmax(scores))].key


class WordEncoder:
    """A small real encoder: each word points somewhere, a text where its words point together.

    It counts what it is given, and can be held back to see what happens meanwhile.
    """

    def __init__(self, identity: str = "words-1") -> None:
        self.identity = identity
        self.encoded: list[str] = []
        self.go_on = Event()
        self.go_on.set()
        self._lock = Lock()

    def encode(self, text: str) -> Vector:
        assert self.go_on.wait(30)
        with self._lock:
            self.encoded.append(text)
        total = np.zeros(DIMENSIONS, np.float32)
        for word in text.lower().split():
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
            total += np.random.default_rng(seed).standard_normal(DIMENSIONS, dtype=np.float32)
        length = float(np.linalg.norm(total))
        return total / np.float32(length) if length else total
