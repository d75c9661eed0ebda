"""One answer to each written name: in calls, selections, the guard, requests and for clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.catalog import Snapshot
from fingerpost.catalog.name_resolver import MAX_WRITTEN_LENGTH, find_reading, fold_name
from fingerpost.choose.offered_tools import OfferedTools
from fingerpost.choose.selection import parse_choice
from fingerpost.choose.syntax_guard.scanner import SyntaxGuard
from fingerpost.choose.tool_loop import parse_turn
from fingerpost.llm import ModelReply
from fingerpost.narrow.signals.reader import SignalReader
from fingerpost.records import JsonObject, ParsedSelection, Scope, ToolCall, create_id
from fingerpost.surfaces.gateway.protocol import JsonRpcError
from fingerpost.testing import tool_server
from tests.catalog.tool_name_corpus import CATALOGS, DEFINITIONS, Meaning, WrittenName, read_corpus
from tests.kit.cards import snapshot
from tests.kit.gateway_methods import OpenMethods, open_gateway_methods, text_of
from tests.kit.tables import table
from tests.requirements import proves

CORPUS = read_corpus()
ALLOWED = [{"verdict": "allow"}]


def test_the_corpus_is_large_and_says_everything_once() -> None:
    assert len(CORPUS) >= 350
    assert len({(name.catalog, name.written) for name in CORPUS}) == len(CORPUS)
    keys = {name: {card.key for card in catalog.cards} for name, catalog in CATALOGS.items()}
    assert all(set(name.meaning.tools) <= keys[name.catalog] for name in CORPUS)


def find_disagreements(answer: Callable[[WrittenName], Meaning]) -> list[str]:
    found = ((name, answer(name)) for name in CORPUS)
    return [
        f"{name.written!r} ({name.catalog}) means {name.meaning}, not {meaning}"
        for name, meaning in found
        if meaning != name.meaning
    ]


def single(tool: str | None, arguments: Mapping[str, Any] | None = None) -> Meaning:
    return Meaning() if tool is None else Meaning((tool,), str((arguments or {}).get("operation", "")))


@proves("C2", "C3")
def test_the_resolver_has_one_answer_to_each_name() -> None:
    def answer(name: WrittenName) -> Meaning:
        match = CATALOGS[name.catalog].resolve(name.written)
        return Meaning(tuple(card.key for card in match.cards), match.operation)

    assert find_disagreements(answer) == []


def only_if_single(name: WrittenName) -> Meaning:
    """What is left of a meaning where an ambiguous name is used for nothing."""
    return name.meaning if len(name.meaning.tools) == 1 else Meaning()


def find_other_choices(answer: Callable[[WrittenName], Meaning]) -> list[str]:
    found = ((name, answer(name)) for name in CORPUS)
    return [f"{name.written!r}: {got}" for name, got in found if got != only_if_single(name)]


@proves("C2", "A3")
def test_a_selection_names_the_same_tool() -> None:
    offered = {name: OfferedTools(catalog.cards) for name, catalog in CATALOGS.items()}

    def answer(name: WrittenName) -> Meaning:
        text = json.dumps({"tool": name.written, "arguments": {}})
        found = parse_choice(ModelReply(text=text, model="m"), offered[name.catalog])
        chosen = found.selection if isinstance(found, ParsedSelection) else None
        return Meaning() if chosen is None else single(chosen.tool, chosen.arguments)

    assert find_other_choices(answer) == []


@pytest.mark.slow
@proves("C2")
def test_a_call_in_a_turn_means_the_same_tool() -> None:
    def answer(name: WrittenName) -> Meaning:
        call: JsonObject = {"id": "1", "function": {"name": name.written, "arguments": "{}"}}
        turn = parse_turn(ModelReply(text="", model="m", tool_calls=(call,)), CATALOGS[name.catalog].cards)
        return single(turn.calls[0].name, turn.calls[0].arguments) if turn.calls else Meaning()

    assert find_other_choices(answer) == []


@pytest.mark.slow
@proves("C2", "A15")
def test_a_call_that_the_guard_finds_means_the_same_tool() -> None:
    guards = {name: SyntaxGuard(catalog.cards) for name, catalog in CATALOGS.items()}

    def answer(name: WrittenName) -> Meaning:
        call = json.dumps({"name": name.written, "arguments": {}})
        found = guards[name.catalog].clean(f"<tool_call>{call}</tool_call>")
        assert found.text == ""
        (one,) = found.removed
        return single(one.name, one.arguments)

    assert find_other_choices(answer) == []


@proves("D3")
def test_a_request_that_names_a_tool_means_the_same_one() -> None:
    """Not every spelling is a name among a person's words; but those that are mean the same tools."""
    others: list[str] = []
    seen: list[WrittenName] = []
    for catalog, reader in build_readers().items():
        for name in (one for one in CORPUS if one.catalog == catalog):
            mentions = reader.read(f"please run {name.written} for tomorrow").mentions
            tools = [mention for mention in mentions if mention.kind == "tool"]
            for text in {mention.text for mention in tools}:
                found = {mention.name for mention in tools if mention.text == text}
                if found != {card.key for card in CATALOGS[catalog].resolve(text).cards}:
                    others.append(f"{text!r} in {name.written!r}: {found}")
            if {mention.name for mention in tools} == set(name.meaning.tools) != set():
                seen.append(name)
    assert others == []
    assert len(seen) >= 250


def build_readers() -> dict[str, SignalReader]:
    readers = {name: SignalReader() for name in CATALOGS}
    for name, reader in readers.items():
        reader.prepare(CATALOGS[name].cards)
    return readers


async def open_corpus_gateway(stack: AsyncExitStack, folder: Path, catalog: str) -> OpenMethods:
    def server(name: str) -> Any:
        async def say(tool: str, arguments: Mapping[str, Any]) -> str:
            return json.dumps([f"{name}/{tool}", arguments.get("operation", "")], ensure_ascii=False)

        tools = [{**tool, "annotations": {"readOnlyHint": True}} for tool in DEFINITIONS[catalog][name]]
        return tool_server(name, tools, call=say).spec()

    folder.mkdir()  # noqa: ASYNC240 - a new folder
    servers = [server(name) for name in DEFINITIONS[catalog]]
    return await stack.enter_async_context(open_gateway_methods(folder, *servers, policy=ALLOWED))


@pytest.mark.slow
@proves("C2", "G8")
async def test_calls_and_clients_reach_the_same_tool(tmp_path: Path) -> None:
    others: list[str] = []
    async with AsyncExitStack() as stack:
        gateways = {name: await open_corpus_gateway(stack, tmp_path / name, name) for name in CATALOGS}
        for number, name in enumerate(CORPUS):
            gateway, meaning = gateways[name.catalog], name.meaning
            checked = await gateway.router.calls.check(ToolCall(name=name.written, arguments={}))
            expected = meaning.tools[0] if len(meaning.tools) == 1 else None
            if (checked.tool, checked.arguments.get("operation", "")) != (expected, meaning.operation):
                others.append(f"{name.written!r} is checked as {checked.tool}, {checked.problem}")
            if len(meaning.tools) > 1 and not all(tool in checked.problem for tool in meaning.tools):
                others.append(f"{name.written!r} may mean {meaning.tools}: {checked.problem}")
            if number % 6:  # what is called is what was checked
                continue
            answer = await call_by_name(gateway, name.written)
            if not fits(answer, meaning, CATALOGS[name.catalog]):
                others.append(f"{name.written!r} is called as {answer}")
    assert others == []


async def call_by_name(gateway: OpenMethods, name: str) -> str:
    try:
        return text_of(await gateway.call(name, session=create_id("ses")))
    except JsonRpcError as error:
        return error.message


def fits(answer: str, meaning: Meaning, catalog: Snapshot) -> bool:
    if not meaning.tools:
        return "Unknown tool" in answer or "needs the `name`" in answer
    if len(meaning.tools) > 1:
        cards = [catalog.get(key) for key in meaning.tools]
        return "could mean" in answer and all(card and card.exposed_name in answer for card in cards)
    if meaning.operation in {"remove_all", "call"}:  # no operation of this tool
        return "operation" in answer
    tool = next(iter(meaning.tools))
    return answer == json.dumps([tool, meaning.operation], ensure_ascii=False)


@pytest.mark.slow
@proves("X9")
async def test_a_tool_outside_of_the_bounds_is_neither_found_nor_suggested(tmp_path: Path) -> None:
    scope = Scope(tools=("weather/get_forecast", "notes/search"))
    others = [card.key for card in CATALOGS["main"].cards if card.key not in scope.tools]
    async with AsyncExitStack() as stack:
        calls = (await open_corpus_gateway(stack, tmp_path / "main", "main")).router.calls
        for name in (one for one in CORPUS if one.catalog == "main"):
            checked = await calls.check(ToolCall(name=name.written, arguments={}), [scope])
            assert checked.tool in {None, *scope.tools}
            suggested = checked.problem.removeprefix(f"there is no tool {name.written!r}")
            assert not any(key in suggested for key in others)
        # The namesake of another server is not there for this caller, so the name is not ambiguous.
        checked = await calls.check(ToolCall(name="functions.Search", arguments={}), [scope])
        assert checked.tool == "notes/search"


names = st.text(alphabet="aB_-./:0 (`)é\u05d0\u200b", min_size=1, max_size=8)


@pytest.mark.slow
@given(st.lists(st.tuples(names, names), min_size=1, max_size=6, unique=True), names)
def test_a_name_that_a_tool_has_always_wins(pairs: list[tuple[str, str]], written: str) -> None:
    servers: dict[str, list[Mapping[str, Any]]] = {}
    for server, tool in pairs:
        servers.setdefault(server, []).append({"name": tool})
    catalog = snapshot(**servers)
    for card in catalog.cards:
        assert catalog.resolve(card.key).card is card
        found = catalog.resolve(card.exposed_name).cards
        assert found == (card,) or catalog.get(card.exposed_name) in found
    keys = [card.key for card in catalog.resolve(written).cards]
    assert keys == sorted(set(keys))


@given(names, names)
def test_the_order_of_the_tools_makes_no_difference(one: str, other: str) -> None:
    cards = snapshot(a=[{"name": one}], b=[{"name": other}]).cards
    forward, backward = Snapshot(cards=cards), Snapshot(cards=cards[::-1])
    assert forward.resolve(one).cards == backward.resolve(one).cards


@table("written", ["a" * MAX_WRITTEN_LENGTH, "." * MAX_WRITTEN_LENGTH, "a.b:" * 128, "(" * 512, "x" * 10**6])
def test_a_long_name_costs_little(written: str) -> None:
    catalog = CATALOGS["main"]
    assert catalog.resolve(written).cards == ()
    assert len(catalog.near(written)) <= 3


def test_a_namespace_before_a_name_without_a_card_is_removed() -> None:
    assert find_reading("functions.read_result", {"read_result"}) == "read_result"
    assert find_reading("`default_api:read_result:0`", {"read_result"}) == "read_result"
    assert find_reading("READ_RESULT", {"read_result"}) is None


def test_signs_of_every_script_are_kept_and_separators_are_not() -> None:
    assert fold_name("Get-Weather_2") == "getweather2"
    assert fold_name("कि_1") != fold_name("का_1")
    assert fold_name("הוסף־פתק") == fold_name("הוסף_פתק")
    assert fold_name("ﬁnd") == "find"
