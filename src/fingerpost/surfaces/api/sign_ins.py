"""Sign-ins of users to servers: each with the own account, at a page that leads back to the console."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Annotated, Final, Literal, cast
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import TaskGroup
from pydantic import Field

from fingerpost.errors import FingerpostError
from fingerpost.events import AccessChanged
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Right, ServerSpec
from fingerpost.router import Router
from fingerpost.store.credentials import TokenCipher
from fingerpost.surfaces.api.operation import (
    ApiProblem,
    ApiRequest,
    ApiResponse,
    OperationGroup,
    declare_operation,
)
from fingerpost.surfaces.api.visibility import ManagedScope
from fingerpost.surfaces.http.approvals import SignInLinks

START_SECONDS: Final = 30.0
FINISH_SECONDS: Final = 30.0
SIGN_IN_SECONDS: Final = 600.0
MAX_OPEN: Final = 200  # sign-ins at once
MAX_OPEN_OF_USER: Final = 5  # the oldest one is given up for another
_ONE_PATH: Final = "/api/sign-ins/{server}"
AnswerText = Annotated[str, Field(max_length=4000)]


@frozen
class UserSignIn:
    """Whether the caller has signed in to a server where users do so for themselves."""

    server: str
    signed_in: bool


@frozen
class UserSignInPage:
    """The servers where the caller signs in with the own account."""

    items: tuple[UserSignIn, ...]


@frozen
class SignInStart:
    """Where the caller signs in."""

    url: str


@frozen
class SignInQuery:
    """How the caller came to the page of sign-ins."""

    link: Annotated[
        str | None, Field(max_length=100, description="From the URL that an MCP client was given")
    ] = None


@frozen
class SignInAnswer:
    """What the authorization server added to the address that it led back to."""

    state: AnswerText
    code: AnswerText | None = None
    error: AnswerText | None = None
    error_description: AnswerText | None = None
    iss: AnswerText | None = None


class _OpenSignIn:
    """A sign-in that has begun."""

    def __init__(self, spec: ServerSpec, user: str) -> None:
        self.spec = spec
        self.user = user
        self.url: str | None = None
        self.started = anyio.Event()  # the page is known, or it failed
        self.answered = anyio.Event()
        self.answer: dict[str, str] = {}
        self.finished = anyio.Event()
        self.error: FingerpostError | None = None
        self.scope = anyio.CancelScope()

    async def wait_for_answer(self) -> dict[str, str]:
        await self.answered.wait()
        return self.answer


_ANSWER_TOPIC: Final = "sign_in_answer"


async def _finish_sign_in(opened: _OpenSignIn, answer: dict[str, str]) -> JsonObject:
    """Return the server of the sign-in, or its error."""
    opened.answer = answer
    opened.answered.set()
    with anyio.move_on_after(FINISH_SECONDS):
        await opened.finished.wait()
    if opened.error is not None or not opened.finished.is_set():
        opened.scope.cancel()
        return {"error": f"{opened.error or 'The server did not answer.'}"}
    return {"server": opened.spec.name}


async def record_sign_in(
    router: Router, server: str, user: str, change: Literal["made", "removed"], *, by: str
) -> None:
    """Record in the audit trail that a user's sign-in to a server was made or removed."""
    event = AccessChanged(what="sign-in", name=f"of {user} to {server}", change=change, by=by)
    await router.store.journal.append(event)


class SignInOperations(OperationGroup):
    """The operations about the caller's own sign-ins."""

    tag = "sign-ins"

    def __init__(self, router: Router, tasks: TaskGroup, *, address: str) -> None:
        super().__init__(router)
        self._tasks = tasks
        self._redirect = f"{(router.settings.gateway.public_url or address).rstrip('/')}/"
        self._running: list[_OpenSignIn] = []
        self._open: dict[str, _OpenSignIn] = {}  # by state
        self._cipher: TokenCipher | None = None  # for answers on their way to another process
        router.store.messages.answer_questions(_ANSWER_TOPIC, self._find_sealed)

    @declare_operation("GET", "/api/sign-ins", right=Right.USE)
    async def list_sign_ins(self, request: ApiRequest) -> UserSignInPage:
        """Servers where the caller signs in with the own account."""
        user = request.principal.user_name
        items = [
            UserSignIn(server=spec.name, signed_in=await self._router.servers.is_signed_in(spec.name, user))
            for spec in self._list_servers(request)
        ]
        return UserSignInPage(items=tuple(items))

    @declare_operation("POST", _ONE_PATH, right=Right.USE, problems=(404, 409, 410, 502, 503))
    async def begin(self, request: ApiRequest, query: SignInQuery, server: str) -> SignInStart:
        """Begin to sign in to a server; the answer names the page where that is done."""
        spec = self._find_server(request, server)
        if query.link is not None:
            links = SignInLinks(await self._router.store.secret.load())
            if not links.is_valid(query.link, request.principal.user_name, server):
                detail = (
                    f"It has expired, or was made for another user than {request.principal.user_name}. "
                    "Make the call again and open the new link, signed in here as the user of that client."
                )
                raise ApiProblem(410, "This link is not for you", detail)
        own = [opened for opened in self._running if opened.user == request.principal.user_name]
        if len(own) >= MAX_OPEN_OF_USER:
            own[0].scope.cancel()
        elif len(self._running) >= MAX_OPEN:
            raise ApiProblem(503, "Too many sign-ins at once", "Try again in a few minutes.")
        await self._load_cipher()  # the answer may come to another process
        opened = _OpenSignIn(spec, request.principal.user_name)
        self._running.append(opened)
        self._tasks.start_soon(self._run, opened)
        with anyio.move_on_after(START_SECONDS):
            await opened.started.wait()
        if opened.error is not None:
            raise ApiProblem(502, "The sign-in could not be started", f"{opened.error}")
        if opened.url is None:
            opened.scope.cancel()
            raise ApiProblem(409, "There is nothing to sign in to", f"{server} did not ask for a sign-in.")
        return SignInStart(url=opened.url)

    @declare_operation("POST", "/api/sign-in-answers", right=Right.USE, problems=(404, 502))
    async def finish(self, request: ApiRequest, body: SignInAnswer) -> UserSignIn:
        """Finish a sign-in with the answer of the authorization server."""
        fields = ("state", "code", "error", "error_description", "iss")
        answer: JsonObject = {name: value for name in fields if (value := getattr(body, name)) is not None}
        given: JsonObject = {"user": request.principal.user_name, "answer": answer}
        # It may have begun in another process.
        work = self._find_sign_in(given)
        found = await (self._ask_others(given) if work is None else work)
        if found is None:
            detail = "It has expired, was finished already, or was begun by another user. Sign in again."
            raise ApiProblem(404, "There is no such sign-in", detail)
        if "error" in found:
            raise ApiProblem(502, "The sign-in failed", f"{found['error']}")
        await self._router.with_own_tools(request.principal, None)  # lists the tools of the server
        server, user = str(found["server"]), request.principal.user_name
        await record_sign_in(self._router, server, user, "made", by=request.principal.name)
        return UserSignIn(server=server, signed_in=True)

    async def _load_cipher(self) -> TokenCipher:
        self._cipher = self._cipher or TokenCipher(await self._router.store.secret.load())
        return self._cipher

    async def _ask_others(self, given: JsonObject) -> JsonObject | None:
        """Have the process finish the sign-in where it began. Codes are not in the database in the clear."""
        sealed = (await self._load_cipher()).seal(_ANSWER_TOPIC, json.dumps(given).encode()).hex()
        return await self._router.store.messages.ask(
            _ANSWER_TOPIC, {"sealed": sealed}, seconds=FINISH_SECONDS
        )

    def _find_sealed(self, asked: JsonObject) -> Awaitable[JsonObject] | None:
        if self._cipher is None:  # none has begun here
            return None
        given = self._cipher.open(_ANSWER_TOPIC, bytes.fromhex(str(asked["sealed"])))
        return None if given is None else self._find_sign_in(json.loads(given))

    def _find_sign_in(self, given: JsonObject) -> Awaitable[JsonObject] | None:
        """Return the work that finishes a sign-in, or None if this user did not begin it in this process."""
        answer = cast("dict[str, str]", given["answer"])
        opened = self._open.get(answer["state"])
        # Only who began a sign-in may finish it: otherwise a link would bind one person's account to another.
        if opened is None or opened.user != given["user"]:
            return None
        del self._open[answer["state"]]
        return _finish_sign_in(opened, answer)

    @declare_operation("DELETE", _ONE_PATH, status=204, right=Right.USE, problems=(404,))
    async def end(self, request: ApiRequest, server: str) -> ApiResponse:
        """Delete and revoke the caller's sign-in."""
        self._find_server(request, server)
        user = request.principal.user_name
        if await self._router.servers.sign_out(server, user=user) == "not signed in":
            raise ApiProblem(404, "There is no such sign-in", f"You are not signed in to {server}.")
        await record_sign_in(self._router, server, user, "removed", by=request.principal.name)
        return ApiResponse(status=204)

    async def _run(self, opened: _OpenSignIn) -> None:
        """Run one sign-in from start to end."""

        async def open_page(url: str) -> None:
            state = parse_qs(urlsplit(url).query).get("state", [""])[0]
            self._open[state] = opened
            opened.url = url
            opened.started.set()

        try:
            with opened.scope, anyio.move_on_after(SIGN_IN_SECONDS):
                await self._router.servers.sign_in_user(
                    opened.spec.name,
                    opened.user,
                    redirect=self._redirect,
                    open_page=open_page,
                    wait_for_answer=opened.wait_for_answer,
                )
        except FingerpostError as error:
            opened.error = error
        finally:
            self._running.remove(opened)
            self._open = {state: other for state, other in self._open.items() if other is not opened}
            opened.started.set()
            opened.finished.set()

    def _list_servers(self, request: ApiRequest) -> list[ServerSpec]:
        bounds = ManagedScope.from_principal(request.principal, self._router.profiles)
        specs = [self._router.servers.get_spec(status.name) for status in self._router.servers.statuses]
        return [spec for spec in specs if spec.auth == "per_user" and bounds.covers_server(spec.name)]

    def _find_server(self, request: ApiRequest, server: str) -> ServerSpec:
        found = next((spec for spec in self._list_servers(request) if spec.name == server), None)
        if found is None:
            detail = f"There is no server {server[:60]!r} where you sign in with your own account."
            raise ApiProblem(404, "There is no such server", detail)
        return found
