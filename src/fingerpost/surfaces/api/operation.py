"""One operation of the API: its types, its problems (RFC 9457), media types and page parameters."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic_core import to_json

from fingerpost.errors import (
    CallError,
    ConfigError,
    FingerpostError,
    LimitReached,
    ModelError,
    ModelTimeout,
    QuotaReached,
    ResponseTooLarge,
    ServerError,
    ServerUnavailable,
    StoreError,
    ToolTimeout,
    UnknownServer,
    UnknownTool,
)
from fingerpost.frozen import frozen
from fingerpost.records import Principal, Right, create_id
from fingerpost.redaction import scrub, scrub_json
from fingerpost.router import Router
from fingerpost.surfaces.api.sessions import ActiveSession
from fingerpost.surfaces.http.asgi import Header, HttpError, Receive, Send, respond
from fingerpost.surfaces.http.local_callers import Peer


@cache
def build_input_adapter(shape: type[Any]) -> TypeAdapter[Any]:
    """Return the adapter for input. Unknown fields are rejected at any depth."""
    strict_about_names = ConfigDict(extra="forbid")
    return TypeAdapter(checked_dataclass(shape, config=strict_about_names, kw_only=True))


@cache
def build_output_adapter(shape: Any) -> TypeAdapter[Any]:
    """Return the adapter for output."""
    return TypeAdapter(shape)


@frozen
class ApiRequest:
    """A request that was validated against its operation."""

    principal: Principal
    path: Mapping[str, str]  # decoded path parameters
    query: Any = None  # an instance of the operation's `query`
    body: Any = None  # an instance of the operation's `body`
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    session: ActiveSession | None = None  # the console session
    remote: str = ""  # the client's address
    peer: Peer | None = None  # the connection, if the client is on this machine
    is_still_valid: Callable[[], Awaitable[bool]] = field(repr=False)  # whether it would be admitted now


@frozen
class ApiResponse:
    """A response with its own status, headers or media type."""

    body: object = None  # a record, or bytes if `media` is set
    status: int = 200
    headers: tuple[Header, ...] = ()
    media: str | None = None


@frozen
class StreamingResponse:
    """A response that writes to the client itself."""

    run: Callable[[Receive, Send, tuple[Header, ...]], Awaitable[None]]


HttpMethod: TypeAlias = Literal["GET", "POST", "PUT", "DELETE"]
Answer = TypeVar("Answer", bound=Callable[..., Awaitable[object]])


@frozen
class ApiOperation:
    """An operation such as `GET /api/tools/{server}/{tool}`.

    `query` and `body` are frozen dataclasses. Pydantic checks their fields; their docstrings and
    `Annotated[…, Field(description=…)]` become part of the OpenAPI document. `answer` raises `ApiProblem` for
    errors the caller can fix.
    """

    method: HttpMethod
    path: str
    name: str  # operationId, such as `list_packets`
    summary: str
    right: Right | None  # None: any authenticated caller; the operation decides what it sees
    answer: Callable[[ApiRequest], Awaitable[object]]
    query: type[Any] | None = None
    body: type[Any] | None = None
    returns: Any = None  # a type; None: no body
    media: str = "application/json"  # of the response
    status: int = 200
    problems: tuple[int, ...] = ()  # statuses of `ApiProblem` besides the common ones
    tag: str = ""
    other_media: tuple[str, ...] = ()  # further media types of the response
    public: bool = False  # needs no authentication; contains nothing private
    is_sign_in: bool = False  # signs in: the request itself contains the credential
    cancels_on_disconnect: bool = False  # cancelled when the client disconnects
    covers_all: bool = False  # refused to callers limited to some tools, as is all of `administer`


def declare_operation(
    method: HttpMethod, path: str, *, right: Right | None, **more: Any
) -> Callable[[Answer], Answer]:
    """Mark a method of an `OperationGroup` as an operation. `more` are fields of `ApiOperation`.

    Its name is the operationId, its docstring the summary. Besides the request it takes what the path names,
    and `query` and `body` with their types. It returns the type in its signature, or `returns` says the type.
    """

    def mark(answer: Answer) -> Answer:
        summary = (answer.__doc__ or "").removesuffix(".")
        declared = {"method": method, "path": path, "summary": summary, "right": right, **more}
        answer.__dict__["operation"] = declared
        return answer

    return mark


class OperationGroup:
    """Operations with one tag: the methods marked with `declare_operation`."""

    tag: ClassVar[str]

    def __init__(self, router: Router) -> None:
        self._router = router

    def build_operations(self) -> tuple[ApiOperation, ...]:
        marked = (
            name for name, value in vars(type(self)).items() if "operation" in getattr(value, "__dict__", ())
        )
        return tuple(map(self._build_operation, marked))

    def _build_operation(self, name: str) -> ApiOperation:
        method = getattr(self, name)
        hints = get_type_hints(method, include_extras=True)
        shapes = {part: hints.get(part) for part in ("query", "body")}
        returns = None if hints["return"] in (ApiResponse, StreamingResponse) else hints["return"]

        async def answer(request: ApiRequest) -> object:
            parsed = {part: getattr(request, part) for part in shapes if part in hints}
            return await method(request, **parsed, **request.path)

        declared: dict[str, Any] = {"returns": returns, **shapes, **method.operation}
        return ApiOperation(name=name, tag=self.tag, answer=answer, **declared)


class ApiProblem(Exception):
    """An error response as problem details (RFC 9457)."""

    def __init__(
        self, status: int, title: str, detail: str = "", headers: tuple[Header, ...] = (), **more: Any
    ) -> None:
        super().__init__(detail or title)
        self.status = status
        self.title = title
        self.detail = detail
        self.headers = headers
        self.more = more

    @classmethod
    def from_error(cls, error: Exception) -> ApiProblem:
        """Convert an error to a problem. Internal errors are logged with an id that the caller gets."""
        if isinstance(error, ApiProblem):
            return error
        if isinstance(error, HttpError):
            return cls(error.status, HTTPStatus(error.status).phrase, error.message, error.headers)
        if isinstance(error, FingerpostError):
            fitting = ((status, title) for kind, status, title in _STATUS_BY_ERROR if isinstance(error, kind))
            status, title = next(fitting, (500, "Something went wrong"))
            text = scrub(str(error))
            more: dict[str, Any] = {} if error.hint is None else {"hint": scrub(error.hint)}
            retry: tuple[Header, ...] = ()
            if isinstance(error, QuotaReached):
                retry, more["limit"] = ((b"retry-after", str(error.seconds).encode()),), error.limit
            return cls(status, title, f"{text[:1].upper()}{text[1:]}", retry, **more)
        error_id = create_id("err")
        log.error("A request to the API could not be answered (%s)", error_id, exc_info=error)
        detail = f"Internal error. The log entry is {error_id}."
        return cls(500, "Internal error", detail, error_id=error_id)


log = logging.getLogger("fingerpost.api")

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
_PROBLEM_TYPE_HEADER: Final[Header] = (b"content-type", PROBLEM_MEDIA_TYPE.encode())

# The first match counts, so subclasses come before their base classes.
_STATUS_BY_ERROR: Final[tuple[tuple[type[FingerpostError], int, str], ...]] = (
    (UnknownServer, 404, "There is no such server"),
    (UnknownTool, 404, "There is no such tool"),
    (CallError, 422, "This cannot be done"),
    (ConfigError, 422, "The configuration does not allow this"),
    (StoreError, 503, "The store is not available"),
    (ToolTimeout, 504, "A server did not answer in time"),
    (ServerUnavailable, 503, "A server cannot be reached"),
    (ServerError, 502, "A server sent an invalid answer"),
    (ModelTimeout, 504, "The model did not answer in time"),
    (ModelError, 502, "The model failed"),
    (ResponseTooLarge, 502, "A server sent too much"),
    (LimitReached, 429, "A limit is reached"),
)


async def write_problem(send: Send, problem: ApiProblem, common: tuple[Header, ...]) -> None:
    """Send the problem as the response."""
    body: dict[str, Any] = {"type": "about:blank", "title": problem.title, "status": problem.status}
    if problem.detail:
        body["detail"] = problem.detail
    more = scrub_json({name: value for name, value in problem.more.items() if name not in body})
    assert isinstance(more, dict)
    await respond(
        send, problem.status, to_json({**body, **more}), (_PROBLEM_TYPE_HEADER, *problem.headers, *common)
    )


EVENT_STREAM_TYPE: Final = "text/event-stream"


def check_accept(headers: Mapping[str, str], operation: ApiOperation) -> None:
    """Raise `ApiProblem` if the client accepts none of the operation's media types."""
    offered = (operation.media, *operation.other_media)
    if not any(accepts_media(headers, media) for media in offered):
        raise ApiProblem(406, "Not in this form", f"This is given as {' or '.join(offered)}.")


def accepts_media(headers: Mapping[str, str], media: str) -> bool:
    """Return whether the caller accepts this media type. Without an Accept header it accepts all."""
    ranges = _parse_accept(headers)
    return not ranges or any(one in ranges for one in (media, f"{media.partition('/')[0]}/*", "*/*"))


def prefers_event_stream(headers: Mapping[str, str]) -> bool:
    """Return whether the Accept header names event streams explicitly."""
    return EVENT_STREAM_TYPE in _parse_accept(headers)


def _parse_accept(headers: Mapping[str, str]) -> frozenset[str]:
    parts = (part.partition(";") for part in headers.get("accept", "").split(","))
    wanted = ((name.strip().lower(), more.replace(" ", "").lower()) for name, _, more in parts)
    return frozenset(name for name, more in wanted if name and more not in {"q=0", "q=0.0"})


MAX_PAGE_ITEMS: Final = 500
MAX_SEARCH_LENGTH: Final = 200
MAX_REASON_LENGTH: Final = 500
MAX_ROW_NUMBER: Final = 2**63 - 1  # the limit of database integers

PageItem = TypeVar("PageItem")

PageLimit = Annotated[int, Field(ge=1, le=MAX_PAGE_ITEMS, description="Maximum number of items")]
SearchText = Annotated[
    str, Field(max_length=MAX_SEARCH_LENGTH, description="Words that must all occur, in any order and case")
]
NameText = Annotated[str, Field(max_length=2000)]
PageCursor = Annotated[str, Field(max_length=4000, description="`next` of the previous page")]
RowNumber = Annotated[int, Field(ge=0, le=MAX_ROW_NUMBER, description="`next` of the previous page")]
ReasonText = Annotated[
    str, Field(max_length=MAX_REASON_LENGTH, description="The reason, stored with the change")
]


def split_page(items: Sequence[PageItem], limit: int) -> tuple[tuple[PageItem, ...], PageItem | None]:
    """Return the first `limit` items, and the last of them if more follow."""
    page = tuple(items[:limit])
    return page, page[-1] if len(items) > limit else None
