"""Which experts are asked: those given, those a model thinks of, or three that are always worth hearing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

from fingerpost.builtin.specialists.nested import NestedRequests, RequestShare, describe_problem
from fingerpost.builtin.specialists.orchestration.records import PanelExpert
from fingerpost.builtin.specialists.orchestration.shaping import build_response_format
from fingerpost.llm import structured
from fingerpost.records import Json, JsonObject, Mode

MAX_NAME_LENGTH: Final = 60
MAX_FOCUS_LENGTH: Final = 400
DEFAULT_EXPERTS: Final = (
    PanelExpert(name="Practitioner", view="what works in practice: effort, tools, people, upkeep"),
    PanelExpert(name="Skeptic", view="what can go wrong: risks, hidden assumptions, missing evidence"),
    PanelExpert(
        name="Strategist", view="the long run: goals, alternatives, what it makes easier or harder later"
    ),
)
_EXPERTS_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "experts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "view": {"type": "string"}},
                "required": ["name", "view"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["experts"],
    "additionalProperties": False,
}
_EXPERTS_PROMPT = (
    "Which {few} experts should be heard on the question below? Choose views that are likely to differ. "
    "Name each in one to three words, and say in one sentence what it looks at. "
    'Answer with JSON only: {{"experts": [{{"name": …, "view": …}}]}}\n\nThe question:\n{question}'
)


def parse_experts(value: Json, limit: int) -> tuple[PanelExpert, ...]:
    """The experts a caller names: as texts (`Security: looks for attacks`) or objects."""
    items = cast("Iterable[Json]", value) if isinstance(value, list | tuple) else ()
    return _keep_distinct((_parse_expert(item) for item in items), limit)


async def choose_experts(
    nested: NestedRequests, question: str, share: RequestShare, few: int
) -> tuple[PanelExpert, ...]:
    """Those a model thinks of. Where nothing usable comes, the usual three."""
    asked = _EXPERTS_PROMPT.format(few=few, question=question)
    route = await nested.ask(
        asked,
        share,
        mode=Mode.SIMPLE,
        tool_choice="none",
        options=build_response_format("experts", _EXPERTS_SCHEMA),
    )
    found = None if describe_problem(route) else structured(route.answer, _EXPERTS_SCHEMA)
    experts = parse_experts(found.get("experts"), few) if isinstance(found, Mapping) else ()
    return experts if len(experts) > 1 else DEFAULT_EXPERTS[:few]


def _parse_expert(item: Json) -> PanelExpert:
    if isinstance(item, Mapping):
        return PanelExpert(
            name=_to_line(item.get("name"), MAX_NAME_LENGTH),
            view=_to_line(item.get("view"), MAX_FOCUS_LENGTH),
        )
    name, _, view = str(item).partition(":")
    return PanelExpert(name=_to_line(name, MAX_NAME_LENGTH), view=_to_line(view, MAX_FOCUS_LENGTH))


def _to_line(value: Json, max_length: int) -> str:
    return " ".join(value.split())[:max_length] if isinstance(value, str) else ""


def _keep_distinct(experts: Iterable[PanelExpert], limit: int) -> tuple[PanelExpert, ...]:
    """Each name once, and none without: who says what must be clear."""
    found: dict[str, PanelExpert] = {}
    for expert in experts:
        if expert.name and len(found) < limit:
            found.setdefault(expert.name.casefold(), expert)
    return tuple(found.values())
