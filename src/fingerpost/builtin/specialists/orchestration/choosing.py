"""Which experts are asked: those given, those a model thinks of, or three that are always worth hearing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

from fingerpost.builtin.specialists.nested import Nested, Share, problem_of
from fingerpost.builtin.specialists.orchestration.records import Expert
from fingerpost.builtin.specialists.orchestration.shaping import shaped
from fingerpost.llm import structured
from fingerpost.records import Json, JsonObject, Mode

LONGEST_NAME: Final = 60
LONGEST_VIEW: Final = 400
USUAL: Final = (
    Expert(name="Practitioner", view="what works in practice: effort, tools, people, upkeep"),
    Expert(name="Skeptic", view="what can go wrong: risks, hidden assumptions, missing evidence"),
    Expert(name="Strategist", view="the long run: goals, alternatives, what it makes easier or harder later"),
)
_SCHEMA: Final[JsonObject] = {
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
_ASKED = (
    "Which {few} experts should be heard on the question below? Choose views that are likely to differ. "
    "Name each in one to three words, and say in one sentence what it looks at. "
    'Answer with JSON only: {{"experts": [{{"name": …, "view": …}}]}}\n\nThe question:\n{question}'
)


def given(value: Json, most: int) -> tuple[Expert, ...]:
    """The experts a caller names: as texts (`Security: looks for attacks`) or objects."""
    items = cast("Iterable[Json]", value) if isinstance(value, list | tuple) else ()
    return _distinct((_expert(item) for item in items), most)


async def chosen(nested: Nested, question: str, share: Share, few: int) -> tuple[Expert, ...]:
    """Those a model thinks of. Where nothing usable comes, the usual three."""
    asked = _ASKED.format(few=few, question=question)
    route = await nested.ask(
        asked, share, mode=Mode.SIMPLE, tool_choice="none", options=shaped("experts", _SCHEMA)
    )
    found = None if problem_of(route) else structured(route.answer, _SCHEMA)
    experts = given(found.get("experts"), few) if isinstance(found, Mapping) else ()
    return experts if len(experts) > 1 else USUAL[:few]


def _expert(item: Json) -> Expert:
    if isinstance(item, Mapping):
        return Expert(name=_line(item.get("name"), LONGEST_NAME), view=_line(item.get("view"), LONGEST_VIEW))
    name, _, view = str(item).partition(":")
    return Expert(name=_line(name, LONGEST_NAME), view=_line(view, LONGEST_VIEW))


def _line(value: Json, longest: int) -> str:
    return " ".join(value.split())[:longest] if isinstance(value, str) else ""


def _distinct(experts: Iterable[Expert], most: int) -> tuple[Expert, ...]:
    """Each name once, and none without: who says what must be clear."""
    found: dict[str, Expert] = {}
    for expert in experts:
        if expert.name and len(found) < most:
            found.setdefault(expert.name.casefold(), expert)
    return tuple(found.values())
