"""An operator's own set, from what was chosen."""

from __future__ import annotations

from datetime import UTC, datetime

from fingerpost.evals.datasets import OperatorSet
from fingerpost.records import Choice
from tests.kit.catalogs import catalog, create_listing, tool

CARDS = catalog(
    create_listing("web", tool("search"), tool("fetch")), create_listing("git", tool("log"))
).snapshot.cards


def choice(request: str, key: str, *, worked: bool = True, conversation: str | None = None) -> Choice:
    return Choice(
        request=request, tool=key, worked=worked, at=datetime.now(tz=UTC), conversation=conversation
    )


def test_every_request_for_which_something_worked_becomes_a_query() -> None:
    made = OperatorSet.from_choices(
        CARDS,
        [
            choice("what changed?", "git/log"),
            choice("what changed?", "git/log", conversation="other"),
            choice("read me the news", "web/fetch", conversation="ses"),
            choice("read me the news", "git/log", worked=False, conversation="ses"),
            choice("read me the news", "web/search", conversation="ses"),
            choice("old times", "gone/tool"),
            choice("  ", "git/log"),
        ],
    )
    assert [(line["query"], line["relevant"], line["needs_tool"]) for line in made.queries] == [
        ("what changed?", ["git/log"], True),
        ("read me the news", ["web/search", "web/fetch"], True),
    ]
    assert made.gone == 1
    assert sorted(str(line["id"]) for line in made.tools) == ["git/log", "web/fetch", "web/search"]


def test_ids_stay_the_same_while_new_choices_come_in() -> None:
    before = OperatorSet.from_choices(CARDS, [choice("what changed?", "git/log")]).queries
    after = OperatorSet.from_choices(
        CARDS, [choice("news", "web/search"), choice("what changed?", "git/log")]
    ).queries
    assert before[0]["id"] == after[1]["id"]
