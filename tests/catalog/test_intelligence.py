from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.catalog import CATEGORIES
from fingerpost.events import CatalogChanged, MemorySink
from fingerpost.records import (
    DataLabel,
    Effect,
    Instructions,
    Json,
    Known,
    LatencyTier,
    RetryCondition,
    Source,
    UsageProfile,
    utc_now,
)
from fingerpost.settings.model import FlagSettings, ToolOverride
from tests.catalog.test_fingerprint import json_values
from tests.kit.catalogs import card, catalog, create_listing, tool
from tests.kit.tables import table
from tests.requirements import proves


def used(key: str, *, calls: int = 40, ms: float = 700, tokens: int = 3210) -> dict[str, UsageProfile]:
    profile = UsageProfile(
        tool=key,
        calls=calls,
        failures=1,
        typical_ms=ms,
        slow_ms=ms * 4,
        typical_tokens=tokens,
        large_tokens=tokens * 3,
        last_used=utc_now(),
    )
    return {key: profile}


@proves("D1")
@table(
    ("server", "name", "description", "category"),
    [
        ("filesystem", "read_text_file", "Read the contents of a file", "files"),
        ("github", "create_pull_request", "Open a pull request", "code"),
        ("shell", "run_command", "Run a command in the terminal", "system"),
        ("k8s", "pods_list", "Pods of the cluster", "system"),
        ("brave", "brave_web_search", "Search the web", "web_search"),
        ("puppeteer", "puppeteer_click", "Click an element on the page", "web_page"),
        ("postgres", "query", "Query the database", "data"),
        ("slack", "post_message", "Post to a channel", "communication"),
        ("google", "create_event", "Put a meeting into the calendar", "planning"),
        ("memory", "search_nodes", "Search the knowledge graph", "knowledge"),
        ("dalle", "generate_image", "Draw a picture", "media"),
        ("stripe", "create_invoice", "Invoice a customer", "commerce"),
        ("clock", "get_current_time", "The time in a timezone", "time_place"),
        ("misc", "frobnicate", "Does it", "general"),
        ("misc", "calc", "חיפוש חדשות באינטרנט", "web_search"),
    ],
)
def test_the_category_is_inferred_from_the_words_of_the_tool(
    server: str, name: str, description: str, category: str
) -> None:
    found = card(tool(name, description), server=server).intelligence.category
    assert found.value == category
    assert found.source is (Source.DEFAULT if category == "general" else Source.INFERRED)


@proves("D1")
def test_there_are_twelve_categories_in_both_languages() -> None:
    assert len({category.name for category in CATEGORIES}) == 12
    assert all(category.english and category.hebrew and category.about for category in CATEGORIES)


@proves("D1", "D8")
def test_time_outs_are_a_minute_and_five_for_research() -> None:
    plain = card(tool("get_price")).intelligence.latency
    research = card(tool("market_research", "Deep research on a market")).intelligence.latency
    assert (plain.timeout.value, plain.tier) == (60_000, LatencyTier.FAST)
    assert (research.timeout.value, research.tier) == (300_000, LatencyTier.VERY_SLOW)
    assert research.feedback_delay.value < plain.feedback_delay.value


@proves("D1", "D8")
def test_a_time_out_follows_the_typical_latency_unless_it_is_written() -> None:
    slow = ToolOverride(match="shop/*", typical_ms=30_000)
    assert card(tool("get_price"), overrides=[slow]).intelligence.latency.timeout.value == 300_000
    both = ToolOverride(match="shop/*", typical_ms=30_000, timeout_ms=45_000, feedback_delay_ms=7)
    latency = card(tool("get_price"), overrides=[both]).intelligence.latency
    assert latency.timeout == Known(45_000, Source.WRITTEN, "written for 'shop/*'")
    assert latency.feedback_delay.value == 7


@proves("D1")
def test_well_known_tools_bring_what_is_known_about_them() -> None:
    it = catalog(
        create_listing(
            "perplexity", tool("perplexity_research"), tool("perplexity_ask"), tool("perplexity_search")
        ),
        create_listing("tavily", tool("tavily-search")),
        create_listing("gov", tool("datagov_query")),
        create_listing("fs", tool("read_file"), tool("write_file")),
        create_listing("fs2", tool("read_file")),
    )
    known = {card.name: card.intelligence for card in it.snapshot.cards}
    assert {name: item.priority.value for name, item in known.items()} == {
        "perplexity_research": 100,
        "perplexity_ask": 95,
        "datagov_query": 95,
        "tavily-search": 90,
        "perplexity_search": 85,
        "read_file": 80,
        "write_file": 80,
    }
    assert known["datagov_query"].hierarchy.value == ("perplexity/perplexity_search", "tavily/tavily-search")
    assert known["datagov_query"].signals.exclusive_intent.value == "official_data"
    assert known["perplexity_research"].hierarchy.value == (
        "perplexity/perplexity_ask",
        "tavily/tavily-search",
    )
    assert known["tavily-search"].hierarchy.value == ("perplexity/perplexity_search",)
    assert known["read_file"].hierarchy.value == ()
    assert "shipped" in known["datagov_query"].hierarchy.reason


@proves("D1")
def test_every_field_a_person_may_write_is_taken_with_its_pattern_as_reason() -> None:
    written = ToolOverride(
        match="shop/get_*",
        description="Prices, in euros",
        effect=Effect.DESTROY,
        operations={"drop": Effect.DESTROY},
        labels={DataLabel.PRIVATE: True},
        cache_seconds=60.0,
        retries=4,
        retry_on=(RetryCondition.TIMEOUT,),
        repeatable=True,
        category="pricing",
        priority=3,
        hierarchy=("shop/other",),
        conflicts=("shop/third",),
        typical_ms=1,
        timeout_ms=2,
        feedback_delay_ms=3,
        typical_tokens=4,
        max_tokens=5,
        structured=True,
        needs_summary=True,
        keywords=("euro",),
        weight=2.5,
        exclusive_intent="commerce",
        purpose="Says what a thing costs",
        when=("somebody wants to buy",),
        when_not=("it is not for sale",),
        examples=("How much is the red one?",),
    )
    it = catalog(create_listing("shop", tool("get_price"), tool("other"), tool("third")), overrides=[written])
    found = it.snapshot.get("shop/get_price")
    assert found is not None
    known = found.intelligence
    values: dict[str, object] = {
        "effect": found.effect,
        "category": known.category,
        "priority": known.priority,
        "hierarchy": known.hierarchy,
        "conflicts": known.conflicts,
        "typical_ms": known.latency.typical,
        "timeout_ms": known.latency.timeout,
        "feedback_delay_ms": known.latency.feedback_delay,
        "typical_tokens": known.response.typical_tokens,
        "max_tokens": known.response.max_tokens,
        "structured": known.response.structured,
        "needs_summary": known.response.needs_summary,
        "keywords": known.signals.keywords,
        "weight": known.signals.weight,
        "exclusive_intent": known.signals.exclusive_intent,
        "cache_seconds": found.cache_seconds,
        "retries": found.retry.retries,
        "retry_on": found.retry.conditions,
        "repeatable": found.retry.repeatable,
    }
    assert values == {
        field: Known(getattr(written, field), Source.WRITTEN, "written for 'shop/get_*'") for field in values
    }
    assert found.description == "Prices, in euros"
    assert found.instructions == Instructions(
        purpose="Says what a thing costs",
        when=("somebody wants to buy",),
        when_not=("it is not for sale",),
        examples=("How much is the red one?",),
    )
    assert dict(found.operations) == {"drop": Effect.DESTROY}
    assert found.labels[DataLabel.PRIVATE] == Known(True, Source.WRITTEN, "written for 'shop/get_*'")
    fields = {field.name for field in dataclasses.fields(Instructions)}
    others = {"match", "enabled", "description", "operations", "labels"}
    assert set(ToolOverride.model_fields) == {*others, *values, *fields}


@proves("D1")
def test_of_two_overrides_the_later_wins_field_by_field() -> None:
    rules = [
        ToolOverride(match="*", priority=1, category="all"),
        ToolOverride(match="shop/*", priority=2),
        ToolOverride(match="SHOP/*", priority=3),
    ]
    known = card(tool("get_price"), overrides=rules).intelligence
    assert (known.priority.value, known.priority.reason) == (2, "written for 'shop/*'")
    assert known.category.value == "all"


@proves("B1")
def test_instructions_are_written_by_pattern_and_merged_field_by_field() -> None:
    rules = [
        ToolOverride(match="shop/*", when=("shopping",), purpose="A shop"),
        ToolOverride(match="shop/get_price", purpose="Prices"),
    ]
    it = catalog(
        create_listing("shop", tool("get_price"), tool("other")),
        create_listing("desk", tool("x")),
        overrides=rules,
    )
    assert [card.instructions for card in it.snapshot.cards] == [
        Instructions(),
        Instructions(purpose="Prices", when=("shopping",)),
        Instructions(purpose="A shop", when=("shopping",)),
    ]


@proves("D1", "F24")
def test_a_description_written_by_a_person_leaves_definition_and_fingerprint_alone() -> None:
    plain = card(tool("get_price"))
    rewritten = card(tool("get_price"), overrides=[ToolOverride(match="*", description="Mine")])
    assert (rewritten.fingerprint, rewritten.definition) == (plain.fingerprint, plain.definition)


@proves("H18", "D1")
def test_typical_latency_and_size_are_learned_from_use() -> None:
    events = MemorySink()
    it = catalog(create_listing("shop", tool("get_price"), tool("get_stock")), events=events)
    assert it.learn(used("shop/get_price", ms=21_987, tokens=3210)).changed == ("shop/get_price",)
    found = it.snapshot.get("shop/get_price")
    assert found is not None
    assert found.intelligence.latency.typical == Known(21_000, Source.LEARNED, "median of 40 or more calls")
    assert found.intelligence.latency.tier is LatencyTier.SLOW
    assert found.intelligence.latency.timeout.value == 300_000
    assert found.intelligence.response.typical_tokens.value == 3200
    listed = [event for event in events.events if isinstance(event, CatalogChanged)]
    assert [event.changed for event in listed] == [(), ("shop/get_price",)]


@proves("H18")
def test_one_call_more_makes_no_new_version_and_few_calls_teach_nothing() -> None:
    it = catalog(create_listing("shop", tool("get_price")))
    assert not it.learn(used("shop/get_price", calls=4))
    assert it.learn(used("shop/get_price", calls=40, ms=701))
    assert not it.learn(used("shop/get_price", calls=41, ms=704))
    assert not it.learn(used("shop/never_seen"))


@proves("H18", "D1")
def test_what_was_learned_outlives_a_new_listing_and_yields_to_what_is_written() -> None:
    written = [ToolOverride(match="shop/get_stock", typical_ms=5)]
    it = catalog(overrides=written)
    it.learn({**used("shop/get_price"), **used("shop/get_stock")})
    it.replace_server(create_listing("shop", tool("get_price"), tool("get_stock")))
    typical = {card.name: card.intelligence.latency.typical for card in it.snapshot.cards}
    assert (typical["get_price"].value, typical["get_price"].source) == (700, Source.LEARNED)
    assert (typical["get_stock"].value, typical["get_stock"].source) == (5, Source.WRITTEN)


@proves("H18", "D1")
def test_use_teaches_better_than_shipped_knowledge_does() -> None:
    it = catalog(create_listing("p", tool("perplexity_research")))
    it.learn(used("p/perplexity_research", ms=9_000))
    assert it.snapshot.cards[0].intelligence.latency.typical.value == 9_000
    assert it.snapshot.cards[0].intelligence.priority.value == 100


@proves("D12", "D1")
def test_inference_and_learning_can_be_switched_off() -> None:
    off = FlagSettings(inferred_intelligence=False, learned_intelligence=False)
    it = catalog(create_listing("fs", tool("read_file", "Read a file")), flags=off)
    assert not it.learn(used("fs/read_file"))
    (found,) = it.snapshot.cards
    known = found.intelligence
    assert found.effect.value is Effect.READ  # judged all the same: it decides who is asked
    assert {known.category.source, known.priority.source, known.latency.typical.source} == {Source.DEFAULT}
    assert (known.category.value, known.signals.keywords.value) == ("general", ())
    assert known.parameters.required == ("id",)


@proves("D1")
def test_keywords_and_parameters_come_from_the_definition_within_bounds() -> None:
    properties: dict[str, Json] = {f"field{number}": {"default": number} for number in range(500)}
    schema: Json = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "examples": ["Haifa", "Jaffa"], "default": "Lod"},
            "unit": {"enum": ["celsius", "kelvin"]},
            "note": {"default": "x" * 1000},
            **properties,
        },
        "required": ["city", "unit", 7],
    }
    known = card(
        tool("get_weather", "The weather of a city " + "word " * 50_000, inputSchema=schema)
    ).intelligence
    assert known.parameters.required == ("city", "unit")
    assert known.parameters.optional[:2] == ("note", "field0")
    assert len(known.parameters.optional) == 64
    assert len(known.parameters.examples) == 16
    assert (known.parameters.examples["city"], known.parameters.examples["unit"]) == ("Haifa", "celsius")
    assert "note" not in known.parameters.examples
    assert known.signals.keywords.value[:2] == ("weather", "city")
    assert len(known.signals.keywords.value) <= 24
    assert not {"the", "of", "a", "get"} & set(known.signals.keywords.value)


@proves("D1")
def test_answers_are_structured_when_an_output_schema_says_so() -> None:
    declared = card(tool("get_price", outputSchema={"type": "object"})).intelligence.response.structured
    silent = card(tool("get_price")).intelligence.response.structured
    assert (declared.value, silent.value) == (True, False)


@pytest.mark.slow
@proves("D1", "F19")
@given(schema=json_values, annotations=json_values, description=json_values)
def test_any_json_in_any_part_still_makes_a_card(schema: Json, annotations: Json, description: Json) -> None:
    definition = {
        "name": "get_thing",
        "description": description,
        "inputSchema": {"properties": schema, "required": schema, "type": schema},
        "outputSchema": schema,
        "annotations": annotations,
    }
    assert card(definition).key == "shop/get_thing"
    assert card({**definition, "inputSchema": schema}).key == "shop/get_thing"


@pytest.mark.slow
@given(st.text(max_size=20), st.text(max_size=60))
def test_every_known_value_says_where_it_comes_from(name: str, description: str) -> None:
    known = card(tool(f"x{name}", description)).intelligence
    for item in (known.category, known.priority, known.latency.typical, known.response.typical_tokens):
        assert item.source is Source.DEFAULT or item.reason
