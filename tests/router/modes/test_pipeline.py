"""The request on one page: the seven steps stand in one function, in order; options are records."""

from __future__ import annotations

import ast
from dataclasses import FrozenInstanceError, fields
from inspect import getsource
from pathlib import Path
from typing import get_type_hints

import pytest

from fingerpost.records import CallContext
from fingerpost.router import (
    CallKeywords,
    CallOptions,
    NarrowKeywords,
    NarrowOptions,
    RouteKeywords,
    RouteOptions,
    Router,
    pipeline,
)
from fingerpost.settings import Settings
from tests.kit.stores import place_empty_store

STEPS = ["narrow", "select", "check", "review", "gate", "call", "answer"]


def test_the_seven_steps_stand_in_one_function_in_order() -> None:
    tree = ast.parse(getsource(pipeline.take_steps))
    called = [
        (node.lineno, node.func.id)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in STEPS
    ]
    assert [name for _, name in sorted(called)] == STEPS


def test_the_request_fits_on_one_page() -> None:
    path = Path(pipeline.__file__)
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize(
    ("record", "keywords"),
    [(NarrowOptions, NarrowKeywords), (RouteOptions, RouteKeywords), (CallOptions, CallKeywords)],
)
def test_a_record_of_options_has_the_keywords_of_the_public_methods(record: type, keywords: type) -> None:
    expected = get_type_hints(keywords)
    found = get_type_hints(record)
    found["history"] = expected.get("history")  # the record has None, too: read from the conversation
    assert {field.name: found[field.name] for field in fields(record)} == expected


def test_the_options_of_a_call_are_the_context_that_callers_give() -> None:
    assert {field.name for field in fields(CallOptions)} < {field.name for field in fields(CallContext)}
    given = CallOptions(caller="dana", seconds=2.5, dry_run=True, fallback=False, doubt="why not")
    context = given.build_context()
    assert all(getattr(context, field.name) == getattr(given, field.name) for field in fields(given))
    unset = CallOptions().build_context()
    assert unset == CallContext(call_id=unset.call_id)


def test_options_do_not_change_on_their_way() -> None:
    options = RouteOptions(mode="staged")
    with pytest.raises(FrozenInstanceError):
        options.mode = "react"  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_keyword_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    settings = Settings.model_validate({"store": {"url": place_empty_store(tmp_path, "s.db")}})
    async with Router(settings=settings) as router:
        with pytest.raises(TypeError, match="profil"):
            await router.route("Hello!", profil="guide")  # pyright: ignore[reportCallIssue]
