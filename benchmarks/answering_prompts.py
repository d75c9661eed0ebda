"""How much a model has to read for one request, in each way, against being offered every tool.

All prompts of a request are counted, as the model got them: messages, definitions and shapes. The
bare way is what a client without a router does: all definitions, once to decide and once to answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import mean

from rich.table import Table

from benchmarks.answering_world import CITIES, TOOL, World, requests, small_talk
from fingerpost.call.digest.tokens import count_tokens
from fingerpost.choose.tool_loop import build_turn_request
from fingerpost.llm import ModelRequest
from fingerpost.records import Packet, Step
from fingerpost.settings import ChooseSettings

REQUESTS = 10
PURPOSES = {"relevant_servers": "servers", "selection": "select", "review": "review", "step": "step"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What was read in one request: tokens by purpose, in order."""

    tokens: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        return sum(count for _, count in self.tokens)


def size(request: ModelRequest) -> int:
    """The tokens of everything that goes out."""
    prompt = sum(
        count_tokens(message.text) + count_tokens(_plain(message.tool_calls)) for message in request.messages
    )
    shape = 0 if request.schema is None else count_tokens(_plain(request.schema.schema))
    return prompt + shape + sum(count_tokens(_plain(tool)) for tool in request.tools)


def _plain(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict) if value else ""


def purpose(request: ModelRequest) -> str:
    if request.schema is not None:
        return PURPOSES.get(request.schema.name, request.schema.name)
    return "decide" if request.tool_choice == "auto" else "answer"


async def read_by(bench_world: World, mode: str, texts: Iterator[str]) -> list[Read]:
    found: list[Read] = []
    for _ in range(REQUESTS):
        begin = len(bench_world.model.asked)
        await bench_world.router.route(next(texts), mode=mode)
        asked = bench_world.model.asked[begin:]
        found.append(Read(tokens=tuple((purpose(request), size(request)) for request in asked)))
    return found


def bare(bench_world: World, text: str, *, used: bool) -> Read:
    """Every definition, and nothing else of ours."""
    packet, cards = Packet.start(text), bench_world.router.tools.cards
    settings = ChooseSettings()
    first = build_turn_request(packet, cards, system="", history=(), settings=settings)
    if not used:
        return Read(tokens=(("answer", size(first)),))
    zone: str = next(iter(CITIES.values()))
    step = Step(tool=TOOL, arguments={"timezone": zone}, success=True, text=f'{{"timezone": "{zone}"}}',
                call_id="call_1")  # fmt: skip
    after = replace(packet, tool_routing=replace(packet.tool_routing, steps=(step,)))
    second = build_turn_request(after, cards, system="", history=(), settings=settings)
    return Read(tokens=(("decide", size(first)), ("answer", size(second))))


async def prompts(bench_world: World) -> Table:
    asked, talk = requests(), small_talk()
    rows = {
        "every tool offered, no router": [bare(bench_world, next(asked), used=True) for _ in range(REQUESTS)],
        **{mode: await read_by(bench_world, mode, asked) for mode in ("single", "react", "staged")},
        "every tool offered, direct answer": [
            bare(bench_world, next(talk), used=False) for _ in range(REQUESTS)
        ],
        "direct answer": await read_by(bench_world, "staged", talk),
    }
    table = Table(
        title=f"Tokens a model reads for one request at {bench_world.tools} tools ({REQUESTS} requests)"
    )
    for column in ("way", "prompts", "tokens", "of every tool", "each prompt"):
        table.add_column(
            column, justify="right" if column in ("prompts", "tokens", "of every tool") else "left"
        )
    whole = 0.0
    for name, found in rows.items():
        total = mean(one.total for one in found)
        whole = total if name.startswith("every") else whole
        table.add_row(
            name,
            f"{mean(len(one.tokens) for one in found):.3g}",
            f"{total:,.0f}",
            f"{total / whole:.1%}",
            each_prompt(found),
        )
    return table


def each_prompt(found: list[Read]) -> str:
    """The mean size of each kind of prompt: not every request needs every kind."""
    sizes: dict[str, list[int]] = {}
    for one in found:
        for label, tokens in one.tokens:
            sizes.setdefault(label, []).append(tokens)
    return ", ".join(f"{label} {mean(tokens):.0f}" for label, tokens in sizes.items())
