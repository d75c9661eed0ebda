"""A tool's parameters in one line."""

from __future__ import annotations

from fingerpost.call.arguments import format_signature
from tests.kit.argument_tools import TEXT, WHOLE, takes
from tests.requirements import proves


@proves("C4")
def test_a_signature_names_required_parameters_first_with_types_choices_and_defaults() -> None:
    card = takes(
        {
            "limit": {"type": "integer", "default": 10},
            "sort": {"enum": ["asc", "desc"]},
            "query": TEXT,
            "tags": {"type": "array", "items": TEXT},
            "near": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
            "since": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        },
        required=["query"],
        name="search",
    )
    assert format_signature(card) == (
        'shop__search(query: string, limit?: integer = 10, sort?: "asc"|"desc", tags?: list of string, '
        "near?: {lat: number}, since?: date|null)"
    )


def test_a_signature_is_bounded_and_says_how_much_is_left_out() -> None:
    card = takes({f"parameter_{number}": TEXT for number in range(100)})
    for limit in (60, 120, 400):
        line = format_signature(card, limit=limit)
        assert len(line) <= limit
        assert line.startswith("shop__act(parameter_0: string")
        assert "more)" in line


def test_many_choices_are_counted_instead_of_listed() -> None:
    line = format_signature(takes({"zone": {"enum": [f"zone-{number}" for number in range(300)]}}))
    assert '"zone-0"' in line
    assert "+292 more" in line


def test_a_tool_without_parameters_or_schema_has_a_signature() -> None:
    assert format_signature(takes({})) == "shop__act()"
    assert format_signature(takes({"n": WHOLE}), limit=400) == "shop__act(n: integer)"
