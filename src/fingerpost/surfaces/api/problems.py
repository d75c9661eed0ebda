"""What went wrong, as problem details (RFC 9457)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from pydantic_core import to_json

from fingerpost.errors import (
    CallError,
    ConfigError,
    FingerpostError,
    LimitReached,
    ModelError,
    ModelTimeout,
    ResponseTooLarge,
    ServerError,
    ServerUnavailable,
    StoreError,
    ToolTimeout,
    UnknownServer,
    UnknownTool,
)
from fingerpost.frozen import frozen
from fingerpost.records import create_id
from fingerpost.redaction import scrub, scrub_json
from fingerpost.surfaces.api.operation import ApiProblem
from fingerpost.surfaces.web.asgi import Header, HttpError, Send, respond

log = logging.getLogger("fingerpost.api")

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
_PROBLEM_TYPE_HEADER: Final[Header] = (b"content-type", PROBLEM_MEDIA_TYPE.encode())

# The first that fits: narrower kinds stand before wider ones.
_STATUS_BY_ERROR: Final[tuple[tuple[type[FingerpostError], int, str], ...]] = (
    (UnknownServer, 404, "There is no such server"),
    (UnknownTool, 404, "There is no such tool"),
    (CallError, 422, "This cannot be done"),
    (ConfigError, 422, "This cannot be done as things are set up"),
    (StoreError, 503, "The store cannot be used at the moment"),
    (ToolTimeout, 504, "A server did not answer in time"),
    (ServerUnavailable, 503, "A server cannot be reached"),
    (ServerError, 502, "A server did something wrong"),
    (ModelTimeout, 504, "The model did not answer in time"),
    (ModelError, 502, "The model did not do what was asked"),
    (ResponseTooLarge, 502, "A server sent too much"),
    (LimitReached, 429, "A limit is reached"),
)


@frozen
class ProblemDetails:
    """A problem, ready to be written."""

    status: int
    title: str
    detail: str
    more: Mapping[str, Any]
    headers: tuple[Header, ...] = ()


def build_problem(error: Exception) -> ProblemDetails:
    """What the caller hears of an error. What is our own fault goes to the log, with an id for both."""
    if isinstance(error, ApiProblem):
        return ProblemDetails(status=error.status, title=error.title, detail=error.detail, more=error.more)
    if isinstance(error, HttpError):
        title = HTTPStatus(error.status).phrase
        return ProblemDetails(
            status=error.status, title=title, detail=error.message, more={}, headers=error.headers
        )
    if isinstance(error, FingerpostError):
        return _build_known_problem(error)
    error_id = create_id("err")
    log.error("A request to the API could not be answered (%s)", error_id, exc_info=error)
    detail = f"Something went wrong here, and it is not your fault. The log has it as {error_id}."
    return ProblemDetails(status=500, title="Our fault", detail=detail, more={"error_id": error_id})


def _build_known_problem(error: FingerpostError) -> ProblemDetails:
    fitting = ((status, title) for kind, status, title in _STATUS_BY_ERROR if isinstance(error, kind))
    status, title = next(fitting, (500, "Something went wrong"))
    text = scrub(str(error))
    detail = f"{text[:1].upper()}{text[1:]}"
    more = {} if error.hint is None else {"hint": scrub(error.hint)}
    return ProblemDetails(status=status, title=title, detail=detail, more=more)


async def write_problem(send: Send, problem: ProblemDetails, common: tuple[Header, ...]) -> None:
    """Tell the caller."""
    body: dict[str, Any] = {"type": "about:blank", "title": problem.title, "status": problem.status}
    if problem.detail:
        body["detail"] = problem.detail
    more = scrub_json({name: value for name, value in problem.more.items() if name not in body})
    assert isinstance(more, dict)
    await respond(
        send, problem.status, to_json({**body, **more}), (_PROBLEM_TYPE_HEADER, *problem.headers, *common)
    )
