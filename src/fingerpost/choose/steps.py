"""The calls a packet made, told again to a model: always from the packet, always in the same words.

Because nothing but the packet goes in, a journey can be taken up after a restart; and
because a step is always written the same way, each request begins with the one before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from fingerpost.catalog import exposed_name
from fingerpost.records import JsonObject, Message, Step, ToolCard

LONGEST_STEP: Final = 400_000  # characters; results are cut to tokens before they come here
_END_KEPT: Final = 400  # of a longer one: the fence around a result ends there
LONGEST_ID: Final = 40  # what providers take
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def as_tool_messages(steps: Sequence[Step], cards: Iterable[ToolCard]) -> tuple[Message, ...]:
    """Each step as an assistant's call and the tool's reply, in the OpenAI format."""
    names = exposed_names(cards)
    return tuple(
        message
        for step, reference in zip(steps, _references(steps), strict=True)
        for message in _pair(step, reference, model_name(step.tool, names))
    )


def _pair(step: Step, reference: str, name: str) -> tuple[Message, Message]:
    function: JsonObject = {"name": name, "arguments": arguments_text(step)}
    call: JsonObject = {"id": reference, "type": "function", "function": function}
    return (
        Message(role="assistant", text="", tool_calls=(call,)),
        Message(role="tool", text=step_text(step), tool_call_id=reference),
    )


def _references(steps: Sequence[Step]) -> Iterator[str]:
    """An id for each call: its own, made different where two are alike."""
    given: set[str] = set()
    for number, step in enumerate(steps, start=1):
        reference = step.call_id[:LONGEST_ID]
        if not reference or reference in given:
            reference = f"call_{number}"
        while reference in given:
            reference += "_"
        given.add(reference)
        yield reference


def results_text(steps: Sequence[Step]) -> str:
    """The steps as plain text, for a model that is to read them and nothing else."""
    return "\n\n".join(
        f"{number}. {step.tool} with {arguments_text(step)} "
        f"{'returned' if step.success else 'failed'}:\n{step_text(step)}"
        for number, step in enumerate(steps, start=1)
    )


def step_text(step: Step) -> str:
    """What the model reads of a step: as it was fenced, within bounds."""
    if len(step.text) <= LONGEST_STEP:
        return step.text
    return f"{step.text[: LONGEST_STEP - _END_KEPT]}\n[cut here]\n{step.text[-_END_KEPT:]}"


def arguments_of(step: Step) -> JsonObject:
    """The arguments with their names in order, at every level."""
    return cast("JsonObject", json.loads(arguments_text(step)))


def arguments_text(step: Step) -> str:
    """The same bytes for the same arguments, in whatever order they were written or stored."""
    return json.dumps(step.arguments, ensure_ascii=False, sort_keys=True, default=dict)


def exposed_names(cards: Iterable[ToolCard]) -> dict[str, str]:
    return {card.key: card.exposed_name for card in cards}


def model_name(key: str, names: Mapping[str, str]) -> str:
    """The name a model knows the tool by, even when it is not offered any more."""
    if (known := names.get(key)) is not None:
        return known
    server, _, tool = key.partition("/")
    return key if _NAME.match(key) else exposed_name(server, tool)
