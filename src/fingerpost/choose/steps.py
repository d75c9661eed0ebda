"""The calls a packet made, told again to a model: always from the packet, always in the same words.

Because nothing but the packet goes in, a journey can be taken up after a restart; and
because a step is always written the same way, each request begins with the one before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from fingerpost.catalog import build_exposed_name
from fingerpost.records import JsonObject, Message, Step, ToolCard

MAX_STEP_LENGTH: Final = 400_000  # characters; results are cut to tokens before they come here
_KEPT_END_LENGTH: Final = 400  # of a longer one: the fence around a result ends there
MAX_ID_LENGTH: Final = 40  # what providers take
_MODEL_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def to_tool_messages(steps: Sequence[Step], cards: Iterable[ToolCard]) -> tuple[Message, ...]:
    """Each step as an assistant's call and the tool's reply, in the OpenAI format."""
    names = map_exposed_names(cards)
    return tuple(
        message
        for step, reference in zip(steps, _assign_call_ids(steps), strict=True)
        for message in _build_call_and_reply(step, reference, get_model_name(step.tool, names))
    )


def _build_call_and_reply(step: Step, reference: str, name: str) -> tuple[Message, Message]:
    function: JsonObject = {"name": name, "arguments": dump_arguments(step)}
    call: JsonObject = {"id": reference, "type": "function", "function": function}
    return (
        Message(role="assistant", text="", tool_calls=(call,)),
        Message(role="tool", text=format_step_text(step), tool_call_id=reference),
    )


def _assign_call_ids(steps: Sequence[Step]) -> Iterator[str]:
    """An id for each call: its own, made different where two are alike."""
    given: set[str] = set()
    for number, step in enumerate(steps, start=1):
        reference = step.call_id[:MAX_ID_LENGTH]
        if not reference or reference in given:
            reference = f"call_{number}"
        while reference in given:
            reference += "_"
        given.add(reference)
        yield reference


def format_results(steps: Sequence[Step]) -> str:
    """The steps as plain text, for a model that is to read them and nothing else."""
    return "\n\n".join(
        f"{number}. {step.tool} with {dump_arguments(step)} "
        f"{'returned' if step.success else 'failed'}:\n{format_step_text(step)}"
        for number, step in enumerate(steps, start=1)
    )


def format_step_text(step: Step) -> str:
    """What the model reads of a step: as it was fenced, within bounds."""
    if len(step.text) <= MAX_STEP_LENGTH:
        return step.text
    return f"{step.text[: MAX_STEP_LENGTH - _KEPT_END_LENGTH]}\n[cut here]\n{step.text[-_KEPT_END_LENGTH:]}"


def sort_arguments(step: Step) -> JsonObject:
    """The arguments with their names in order, at every level."""
    return cast("JsonObject", json.loads(dump_arguments(step)))


def dump_arguments(step: Step) -> str:
    """The same bytes for the same arguments, in whatever order they were written or stored."""
    return json.dumps(step.arguments, ensure_ascii=False, sort_keys=True, default=dict)


def map_exposed_names(cards: Iterable[ToolCard]) -> dict[str, str]:
    return {card.key: card.exposed_name for card in cards}


def get_model_name(key: str, names: Mapping[str, str]) -> str:
    """The name a model knows the tool by, even when it is not offered any more."""
    if (known := names.get(key)) is not None:
        return known
    server, _, tool = key.partition("/")
    return key if _MODEL_TOOL_NAME.match(key) else build_exposed_name(server, tool)
