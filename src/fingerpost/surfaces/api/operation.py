"""One operation of the API: what it takes and gives, who may. Routing and OpenAPI are made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from fingerpost.frozen import frozen
from fingerpost.records import Principal, Right
from fingerpost.surfaces.api.sessions import ActiveSession
from fingerpost.surfaces.web.asgi import Header, Receive, Send
from fingerpost.surfaces.web.peers import Peer


async def _always_valid() -> bool:
    return True


@frozen
class ApiRequest:
    """A request whose parts were checked against its operation."""

    principal: Principal
    path: Mapping[str, str]  # the parameters in the path, decoded
    query: Any = None  # an instance of the operation's `query`
    body: Any = None  # an instance of the operation's `body`
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    session: ActiveSession | None = None  # who signed in to the console
    remote: str = ""  # the address they come from
    peer: Peer | None = None  # their connection, where they are on this machine
    is_still_valid: Callable[[], Awaitable[bool]] = field(
        default=_always_valid, repr=False
    )  # they would be let in now


@frozen
class ApiResponse:
    """An answer that is more than a record: another status, headers, a body of another type."""

    body: object = None  # a record, or bytes where `media` is given
    status: int = 200
    headers: tuple[Header, ...] = ()
    media: str | None = None


@frozen
class StreamingResponse:
    """An answer that goes on: it writes to the client itself."""

    run: Callable[[Receive, Send, tuple[Header, ...]], Awaitable[None]]


@frozen
class ApiOperation:
    """`GET /api/tools/{server}/{tool}` and what belongs to it.

    `query` and `body` are frozen dataclasses; their fields are checked by pydantic, their docstrings and
    `Annotated[…, Field(description=…)]` go into the description. `answer` raises `ApiProblem` for what the
    caller can do something about.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    name: str  # operationId, such as `list_packets`
    summary: str
    right: Right | None  # None: whoever is known; what they see, the operation decides
    answer: Callable[[ApiRequest], Awaitable[object]]
    query: type[Any] | None = None
    body: type[Any] | None = None
    returns: Any = None  # a type; None: no body
    media: str = "application/json"  # of what it returns
    status: int = 200
    problems: tuple[int, ...] = ()  # statuses of `ApiProblem` it may raise, beyond those every operation has
    tag: str = ""
    also: tuple[str, ...] = ()  # further media types of the answer, where the caller accepts them
    public: bool = False  # whoever can reach us may ask: it says nothing of anybody
    opens: bool = False  # the request itself brings what lets its sender in
    stops: bool = False  # its work ends when the client leaves


class ApiProblem(Exception):
    """What the caller gets instead, as problem details (RFC 9457)."""

    def __init__(self, status: int, title: str, detail: str = "", **more: Any) -> None:
        super().__init__(detail or title)
        self.status = status
        self.title = title
        self.detail = detail
        self.more = more
