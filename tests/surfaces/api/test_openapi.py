"""The API's description: valid OpenAPI, and kept to, whatever is sent."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.from_thread
import httpx2
import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from jsonschema_rs import validator_for

from fingerpost.frozen import frozen
from fingerpost.records import Right
from fingerpost.testing import tool_server
from tests.kit.api import open_served_api
from tests.kit.call_recorder import DESTROYS, READS, tool
from tests.requirements import proves

# Streams go on for as long as the client listens: they have tests of their own.
STREAMS = frozenset({"/api/live", "/api/events"})
EXAMPLES = {"positive": 2, "negative": 1}  # for each operation
LONG = 1000


@frozen(kw_only=False)
class ApiAddress:
    """Where the API is, and what lets one in."""

    address: str
    key: dict[str, str]


@pytest.fixture(scope="module")
def api_address(tmp_path_factory: pytest.TempPathFactory) -> Generator[ApiAddress]:
    """An API in a thread of its own, for clients without an event loop."""
    folder: Path = tmp_path_factory.mktemp("described")
    server = tool_server(
        "files",
        (
            tool("read_file", "Read a text file.", "path", **READS),
            tool("delete_file", "Delete a file for good.", "path", **DESTROYS),
        ),
    )
    with anyio.from_thread.start_blocking_portal() as portal:
        opened = open_served_api(
            folder, server.spec(), api={"per_minute": 1_000_000}, gateway={"require_key": True}
        )
        with portal.wrap_async_context_manager(opened) as made:
            key = portal.call(made.key, "tester", *Right)
            yield ApiAddress(made.address, {"X-API-Key": key["x-api-key"]})


@pytest.fixture(scope="module")
def document(api_address: ApiAddress) -> dict[str, Any]:
    return httpx2.get(f"{api_address.address}/api/openapi.json").json()


@pytest.mark.slow
@proves("I1")
def test_the_description_is_openapi(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    for component in document["components"]["schemas"].values():
        validator_for(component | {"components": document["components"]})
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    for operation in operations:
        assert operation["summary"]
        assert operation["responses"]["default"]["content"].keys() == {"application/problem+json"}


@pytest.mark.slow
def test_the_description_is_the_same_every_time(api_address: ApiAddress, document: dict[str, Any]) -> None:
    again = httpx2.get(f"{api_address.address}/api/openapi.json").json()
    assert list(again["components"]["schemas"]) == list(document["components"]["schemas"])
    assert again == document


@pytest.mark.slow
@proves("I1")
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_the_api_keeps_to_its_description(
    api_address: ApiAddress, document: dict[str, Any], mode: str
) -> None:
    import schemathesis  # takes a second, in every worker that collects the tests

    schema: Any = schemathesis.openapi.from_dict(_without_long_texts(document))
    operations = [found.ok() for found in schema.get_all_operations()]
    # Wrong keys are tried last: many wrong keys delay a caller.
    with requests.Session() as session:
        for operation in sorted(operations, key=lambda one: one.path == "/api/session"):
            if operation.path not in STREAMS:
                with suppress(Unsatisfiable):  # there is nothing one could send wrongly
                    _try(operation, mode, api_address, session)


def _without_long_texts(node: Any) -> Any:
    """Texts beyond a bound of many thousand characters would be tried, and take all the time."""
    if isinstance(node, dict):
        entries = cast("dict[str, Any]", node).items()
        return {name: _without_long_texts(inner) for name, inner in entries if not _is_long(name, inner)}
    if isinstance(node, list):
        return [_without_long_texts(inner) for inner in cast("list[Any]", node)]
    return node


def _is_long(name: str, value: Any) -> bool:
    return name == "maxLength" and isinstance(value, int) and value > LONG


def _try(operation: Any, mode: str, described: ApiAddress, session: requests.Session) -> None:
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi import checks

    ignored: Any = checks  # only partly typed

    @settings(
        max_examples=EXAMPLES[mode],
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
    def attempt(case: Any) -> None:
        case.call_and_validate(
            base_url=described.address,
            session=session,
            headers=described.key,
            # The first sends a wrong token beside our right key (see below). The second takes for wrong
            # that what is well-formed may be refused all the same: a mode that needs a model.
            excluded_checks=[ignored.ignored_auth, ignored.positive_data_acceptance],
        )

    attempt()


@pytest.mark.slow
@proves("I3")
def test_nothing_is_given_to_strangers(api_address: ApiAddress, document: dict[str, Any]) -> None:
    with httpx2.Client(base_url=api_address.address) as client:
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                answer = client.request(method, path.replace("{", "").replace("}", ""))
                expected = 401 if operation.get("security") != [] else 422 if method == "post" else 200
                expected = 404 if (method, path) == ("post", "/api/sign-on") else expected  # not set up
                assert answer.status_code == expected, (method, path)
