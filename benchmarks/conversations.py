"""Conversations that change their subject: does each turn get the tools it needs, and only those?

    python -m benchmarks conversations
    python -m benchmarks.conversations --smart on --show

The conversations are in data/conversations.txt, their tools in data/conversation_tools.json; both were
written for this benchmark. Every turn goes through `Router.narrow` with what was said before it, as a
conversation of its own, with server pre-selection off, forced on, and by a model: a scripted one that
chooses, once in a conversation, exactly the server of the first turn that needs a tool.

- missed: turns that need a tool and are offered none
- unneeded: turns that need none and are offered some, which is the most that a model could use in vain
- first tool: turns that need a tool and whose first offered tool is one of the right ones
- offered: the same for any of the offered tools

Every third conversation is held out: `--show` lists what went wrong in the others only.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from rich.console import Console
from rich.table import Table

from fingerpost import Router, Settings
from fingerpost.llm import ModelRequest
from fingerpost.records import Message, Narrowing
from fingerpost.testing import ScriptedModel, ToolServer, tool_server

DATA: Final = Path(__file__).parent / "data"
VECTORS_S: Final = 120.0
HELD_OUT: Final = 3  # every third conversation
MODES: Final = ("off", "on", "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One thing a person says, and what would be right."""

    text: str
    reply: str
    need: str  # "tool", "none" or "either"
    tools: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Turns in order."""

    number: int
    language: str
    turns: tuple[Turn, ...]

    @property
    def is_held_out(self) -> bool:
        return self.number % HELD_OUT == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one turn got."""

    conversation: Conversation
    turn: Turn
    found: Narrowing

    @property
    def offered(self) -> tuple[str, ...]:
        return tuple(one.tool.partition("/")[2] for one in self.found.shortlist.offered)

    @property
    def is_missed(self) -> bool:
        return self.turn.need == "tool" and not self.offered

    @property
    def is_unneeded(self) -> bool:
        return self.turn.need == "none" and bool(self.offered)

    @property
    def has_right_first(self) -> bool:
        return bool(self.offered) and self.offered[0] in self.turn.tools

    @property
    def has_right(self) -> bool:
        return not self.turn.tools.isdisjoint(self.offered)


def read_conversations(path: Path = DATA / "conversations.txt") -> list[Conversation]:
    """The conversations of the file, numbered from 1."""
    found: list[Conversation] = []
    language, turns = "", list[Turn]()

    def close() -> None:
        if turns:
            made = Conversation(number=len(found) + 1, language=language, turns=tuple(turns))
            found.append(made)
            turns.clear()

    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            close()
            language = line[3:].strip()
        elif line.strip() and not line.startswith("#"):
            turns.append(_turn(line))
    close()
    return found


def _turn(line: str) -> Turn:
    wanted, text, reply = (part.strip() for part in line.split("|"))
    if wanted == "none":
        return Turn(text=text, reply=reply, need="none")
    names = frozenset(name.strip() for name in wanted.removeprefix("?").split(","))
    return Turn(text=text, reply=reply, need="either" if wanted.startswith("?") else "tool", tools=names)


def servers() -> list[ToolServer]:
    """The servers of the conversations, in process."""
    recorded = json.loads((DATA / "conversation_tools.json").read_text(encoding="utf-8"))
    return [tool_server(name, tools) for name, tools in recorded.items()]


def first_choice(conversations: Iterable[Conversation]) -> ScriptedModel:
    """A model that chooses the server of the first turn that needs a tool, and no other."""
    tools = json.loads((DATA / "conversation_tools.json").read_text(encoding="utf-8"))
    homes = {tool["name"]: server for server, found in tools.items() for tool in found}
    first = {
        turn.text: next((homes[name] for later in one.turns[at:] for name in sorted(later.tools)), "clock")
        for one in conversations
        for at, turn in enumerate(one.turns)
    }

    def choose(request: ModelRequest) -> str:
        asked = json.loads(request.messages[-1].text.splitlines()[-1])["text"]
        return json.dumps({"relevant_servers": [first[asked]], "reasoning": "the first subject"})

    return ScriptedModel(choose)


async def measure(
    conversations: Iterable[Conversation], folder: Path, *, smart: str = "off", dense: bool = True
) -> list[Result]:
    """Every turn of every conversation, each conversation under an id of its own."""
    conversations = list(conversations)
    settings = Settings.model_validate(
        {
            "store": {"url": f"sqlite:///{folder}/{smart}.db"},
            "narrow": {"vectors": str(folder / "vectors")},
            "smart_routing": {"mode": "on" if smart == "model" else smart},
            "flags": {"dense_scores": dense},
        }
    )
    results: list[Result] = []
    model = first_choice(conversations) if smart == "model" else None
    async with Router([server.spec() for server in servers()], settings=settings, model=model) as router:
        await router.connect()
        await router.settle(VECTORS_S)
        for conversation in conversations:
            history: tuple[Message, ...] = ()
            for turn in conversation.turns:
                found = await router.narrow(
                    turn.text, history=history, conversation=f"c{conversation.number}"
                )
                results.append(Result(conversation=conversation, turn=turn, found=found))
                turn_messages = Message(role="user", text=turn.text)
                history = (*history, turn_messages, Message(role="assistant", text=turn.reply or "Good."))
    return results


def _share(results: Sequence[Result], need: str, count: Sequence[bool]) -> str:
    total = sum(result.turn.need == need for result in results)
    return f"{sum(count)} of {total} ({sum(count) / max(1, total):.1%})"


def figures(results: Sequence[Result]) -> tuple[str, ...]:
    """Missed, unneeded, first tool, offered."""
    needing = [result for result in results if result.turn.need == "tool"]
    return (
        _share(results, "tool", [result.is_missed for result in results]),
        _share(results, "none", [result.is_unneeded for result in results]),
        _share(results, "tool", [result.has_right_first for result in needing]),
        _share(results, "tool", [result.has_right for result in needing]),
    )


def _parts(results: Sequence[Result]) -> Iterator[tuple[str, list[Result]]]:
    yield "dev", [one for one in results if not one.conversation.is_held_out]
    yield "held out", [one for one in results if one.conversation.is_held_out]
    yield (
        "held out, Hebrew",
        [one for one in results if one.conversation.is_held_out and one.conversation.language == "he"],
    )
    yield "all", list(results)


def _wrong(results: Iterable[Result]) -> Iterator[str]:
    for one in results:
        if one.conversation.is_held_out:
            continue
        wrong = one.is_missed or one.is_unneeded or (one.turn.need == "tool" and not one.has_right_first)
        if wrong:
            need = one.found.need
            yield (
                f"{one.conversation.number:3} {need.verdict:7} {need.score:.2f} "
                f"fit {one.found.shortlist.fit:.2f}  {one.turn.text}\n      wanted "
                f"{', '.join(sorted(one.turn.tools)) or 'none'}; offered {', '.join(one.offered) or 'none'}"
                f"; {'; '.join(need.reasons)}"
            )


def show(measured: Sequence[tuple[str, Sequence[Result]]], console: Console) -> None:
    count = len({one.conversation.number for _, results in measured for one in results})
    table = Table(title=f"Conversations that change their subject ({count})", title_justify="left")
    for column in ("server pre-selection", "part", "missed", "unneeded", "first tool", "offered"):
        table.add_column(column, no_wrap=True)
    for smart, results in measured:
        table.add_section()
        for name, part in _parts(results):
            table.add_row(smart, name, *figures(part))
    console.print(table)


def run(*, modes: Sequence[str] = MODES, wrong: bool = False, dense: bool = True) -> None:
    console = Console(width=140, highlight=False)
    conversations = read_conversations()
    with tempfile.TemporaryDirectory() as folder:

        async def work() -> list[tuple[str, list[Result]]]:
            return [
                (smart, await measure(conversations, Path(folder), smart=smart, dense=dense))
                for smart in modes
            ]

        measured = anyio.run(work)
    for smart, results in measured if wrong else ():
        console.print(f"server pre-selection {smart}:", *_wrong(results), sep="\n", markup=False)
    show(measured, console)


def main() -> None:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.conversations", description=__doc__)
    reader.add_argument("--smart", choices=MODES, help="server pre-selection; all three by default")
    reader.add_argument("--lexical", action="store_true", help="words alone, no encoder")
    reader.add_argument("--show", action="store_true", help="list wrong turns, none of them held out")
    asked = reader.parse_args()
    run(modes=(asked.smart,) if asked.smart else MODES, wrong=asked.show, dense=not asked.lexical)


if __name__ == "__main__":
    main()
