"""/v1 as an ASGI application: paths, authentication, limits and errors."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Literal, Protocol

import anyio
from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Principal, Right, create_id
from fingerpost.router import Router
from fingerpost.store.credentials import PREFIX
from fingerpost.surfaces.http.access import (
    VERSION_HEADER,
    Authenticator,
    CorsPolicy,
    Endpoint,
    RateLimiter,
    get_caller_authorization,
    resolve_access_scope,
)
from fingerpost.surfaces.http.asgi import (
    JSON_TYPE,
    AsgiScope,
    ClientDisconnected,
    Header,
    HttpError,
    Receive,
    ResponseSender,
    Send,
    check_content_type,
    parse_headers,
    read_body,
    respond,
    run_while_connected,
)
from fingerpost.surfaces.openai.chat import (
    AnswerStream,
    ChatStream,
    LateEventStream,
    build_chat_completion,
    build_result_headers,
)
from fingerpost.surfaces.openai.errors import (
    INTERNAL_ERROR_MESSAGE,
    SHUTDOWN_MESSAGE,
    CompletionError,
    build_error,
    build_too_large_error,
    encode_json,
    format_error,
    parse_object,
)
from fingerpost.surfaces.openai.messages import ChatRequest, parse_chat_request
from fingerpost.surfaces.openai.models import ModelList
from fingerpost.surfaces.openai.options import HEADER_PREFIX, OPTION_NAMES, parse_request_options, split_model
from fingerpost.surfaces.openai.requests import CompletionResult, CompletionRunner, CompletionTurn
from fingerpost.surfaces.openai.responses import ResponseStream, build_response, parse_response_request


class ActiveCompletions:
    """The running requests, with a limit. Accepts none once the app closes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running: set[anyio.CancelScope] = set()
        self._closing = False
        self._done = anyio.Event()

    @contextmanager
    def track_request(self) -> Generator[anyio.CancelScope]:
        """Track a request from start to end. Its scope is cancelled if the app closes before.

        Raises `CompletionError` above the limit.
        """
        if self._closing:
            raise CompletionError(503, SHUTDOWN_MESSAGE)
        if len(self._running) >= self._limit:
            raise CompletionError(
                503, "Too many requests are being answered; try again.", headers=((b"retry-after", b"5"),)
            )
        scope = anyio.CancelScope()
        self._running.add(scope)
        try:
            with scope:
                yield scope
        finally:
            self._running.discard(scope)
            if not self._running:
                self._done.set()

    async def drain(self, seconds: float) -> None:
        """Accept no more requests. Give those that run a short time, then cancel them."""
        self._closing = True
        with anyio.move_on_after(seconds):
            while self._running:
                self._done = anyio.Event()
                await self._done.wait()
        for scope in self._running:
            scope.cancel()


_OWN_HEADERS: Final = tuple(f"{HEADER_PREFIX}{name.replace('_', '-')}" for name in OPTION_NAMES)
_CORS: Final = CorsPolicy(
    methods=b"GET, POST",
    headers=("authorization", "x-api-key", "content-type", "accept", VERSION_HEADER, *_OWN_HEADERS),
    prefix="x-stainless-",  # the openai client describes itself in these; they are not used
    exposed=b"X-Request-Id, X-Fingerpost-Packet, X-Fingerpost-Tools-Used, X-Fingerpost-Saved-Tokens, "
    b"Retry-After",
)


_PATH_PATTERN = re.compile(r"/v1(?:/p/(?P<profile>[^/]+))?/(?P<rest>.+)", re.DOTALL)
_KNOWN_PATHS: Final = "Available: /v1/chat/completions, /v1/responses and /v1/models."


@frozen
class OpenAIPath:
    """An endpoint and the parameters in its path."""

    endpoint: Literal["chat", "responses", "models"]
    path: str  # without names from the caller
    method: Literal["GET", "POST"] = "POST"
    profile: str | None = None
    name: str = ""  # of a model

    @classmethod
    def parse(cls, path: str) -> OpenAIPath:
        """Parse a path. Raises `CompletionError` for an unknown one."""
        # Slashes are stripped here, because the pattern would backtrack over many of them.
        found = _PATH_PATTERN.fullmatch(path.rstrip("/"))
        message = f"There is nothing at {path[:200]!r}. {_KNOWN_PATHS}"
        not_found = CompletionError(404, message, code="not_found")
        if found is None:
            raise not_found
        profile, rest = found["profile"], found["rest"]
        if rest == "chat/completions":
            return cls(endpoint="chat", path="/v1/chat/completions", profile=profile)
        if rest == "responses":
            return cls(endpoint="responses", path="/v1/responses", profile=profile)
        head, _, name = rest.partition("/")
        if head == "models":
            return cls(endpoint="models", path="/v1/models", method="GET", profile=profile, name=name)
        raise not_found


class AnswerBuilder(Protocol):
    """Builds a complete answer."""

    def __call__(self, result: CompletionResult, request: ChatRequest, *, extension: bool) -> JsonObject: ...


@frozen
class ApiFormat:
    """How one API parses requests and formats answers."""

    read: Callable[[Mapping[str, Any]], ChatRequest]
    build_answer: AnswerBuilder
    open_stream: type[AnswerStream]


API_FORMATS: Final[Mapping[str, ApiFormat]] = {
    "chat": ApiFormat(read=parse_chat_request, build_answer=build_chat_completion, open_stream=ChatStream),
    "responses": ApiFormat(
        read=parse_response_request, build_answer=build_response, open_stream=ResponseStream
    ),
}


log = logging.getLogger("fingerpost.completions")

BODY_LIMIT_FACTOR: Final = 8  # times `gateway.body_bytes`, because a request may contain images
MAX_CONCURRENT: Final = 2000


@frozen(kw_only=False)
class OpenAIRequest:
    """One HTTP request to a path of this API."""

    method: str
    path_info: OpenAIPath
    headers: Mapping[str, str]
    remote: str
    receive: Receive
    send: ResponseSender
    common: tuple[Header, ...] = ()  # headers of every response


@asynccontextmanager
async def open_openai_app(
    router: Router, *, authenticator: Authenticator, address: str, rate_limiter: RateLimiter | None = None
) -> AsyncGenerator[OpenAIApp]:
    """Open /v1 for this router at the public address. `rate_limiter` is shared with other surfaces."""
    models = ModelList(router)
    try:
        yield OpenAIApp(
            router, authenticator=authenticator, address=address, models=models, rate_limiter=rate_limiter
        )
    finally:
        with anyio.CancelScope(shield=True):
            await models.aclose()


class OpenAIApp:
    """Answers chats. Use `open_openai_app`."""

    def __init__(
        self,
        router: Router,
        *,
        authenticator: Authenticator,
        address: str,
        models: ModelList,
        rate_limiter: RateLimiter | None = None,
    ) -> None:
        self._router = router
        self._settings = router.settings
        self._authenticator = authenticator
        self._models = models
        self._runner = CompletionRunner(router, address=address)
        self._rate_limiter = rate_limiter or RateLimiter(self._settings.api.per_minute)
        self._active_completions = ActiveCompletions(MAX_CONCURRENT)

    async def drain(self, seconds: float) -> None:
        """Give running requests a short time, then cancel them with an error about the shutdown."""
        await self._active_completions.drain(seconds)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        sender = ResponseSender(send)
        common: tuple[Header, ...] = ()
        try:
            headers, _ = parse_headers(scope["headers"])
            common = _CORS.build_headers(self._authenticator, headers)
            inbound = OpenAIRequest(
                method=scope["method"],
                path_info=OpenAIPath.parse(scope["path"]),
                headers=headers,
                remote=(scope.get("client") or ("",))[0],
                receive=receive,
                send=sender,
                common=common,
            )
            with self._active_completions.track_request() as running:
                await self._handle_request(inbound)
            if running.cancel_called:
                fault = CompletionError(503, SHUTDOWN_MESSAGE)
                if not sender.started:
                    raise fault
                frame = b"data: %s\n\n" % encode_json(format_error(fault))
                await sender({"type": "http.response.body", "body": frame})
        except HttpError as fault:
            await _respond_error(sender, fault, common)
        except ClientDisconnected:
            pass
        except Exception:
            log.exception("A request at %s could not be answered", scope["path"][:200])
            if not sender.started:
                await _respond_error(sender, CompletionError(500, INTERNAL_ERROR_MESSAGE), common)

    async def _handle_request(self, http_request: OpenAIRequest) -> None:
        if http_request.method == "OPTIONS":
            status, headers = _CORS.build_preflight(self._authenticator, http_request.headers)
            await respond(http_request.send, status, b"", headers)
            return
        principal = await self._authenticate(http_request)
        if (wait := self._rate_limiter.take_token(principal.name)) > 0:
            again = (b"retry-after", str(int(wait) + 1).encode())
            raise CompletionError(429, f"Too many requests; wait {int(wait) + 1} s.", headers=(again,))
        path_info = http_request.path_info
        if http_request.method != path_info.method:
            allow = ((b"allow", path_info.method.encode()),)
            raise CompletionError(405, f"Use {path_info.method} here.", headers=allow)
        if path_info.endpoint != "models":
            await self._respond_completion(http_request, principal)
        elif path_info.name:
            await self._respond_json(http_request, await self._models.find_model(path_info.name))
        else:
            listed: JsonObject = {"object": "list", "data": await self._models.list_models()}
            await self._respond_json(http_request, listed)

    async def _authenticate(self, http_request: OpenAIRequest) -> Principal:
        """Return the principal. Clients of this API always send a key, even if none is needed.

        Without sign-in, a credential that is not a Fingerpost key is ignored.
        """
        headers = dict(http_request.headers)
        bearer = headers.get("authorization", "").partition(" ")[2].strip()
        if self._settings.gateway.sign_in is None and not bearer.startswith(PREFIX):
            headers.pop("authorization", None)
        # The body may name the profile. It is checked when the body is read.
        endpoint = Endpoint(path=http_request.path_info.path, right=Right.USE, any_profile=True)
        admitted = await self._authenticator.authenticate(headers, endpoint, remote=http_request.remote)
        if isinstance(admitted, Principal):
            return admitted
        raise CompletionError(admitted.status, admitted.message, headers=admitted.encoded_headers)

    async def _respond_completion(self, http_request: OpenAIRequest, principal: Principal) -> None:
        api_format = API_FORMATS[http_request.path_info.endpoint]
        chat_request = api_format.read(await self._read_body(http_request))
        authorization = get_caller_authorization(http_request.headers, principal)
        if self._router.may_have_own_tools(authorization):
            await self._runner.wait_until_ready()
            principal = await self._router.with_own_tools(principal, authorization)
        turn = self._build_turn(http_request, principal, chat_request)
        try:
            async with self._router.quotas.admit(principal, turn.access_scope.profile, runs=True):
                await self._respond_turn(http_request, turn, api_format)
        except FingerpostError as error:
            raise build_error(error) from error

    async def _respond_turn(
        self, http_request: OpenAIRequest, turn: CompletionTurn, api_format: ApiFormat
    ) -> None:
        if turn.request.stream:
            await self._stream_answer(http_request, turn, api_format)
            return
        result = await run_while_connected(http_request.receive, lambda _: self._runner.run_turn(turn))
        body = api_format.build_answer(result, turn.request, extension=self._settings.completions.extension)
        await self._respond_json(http_request, body, build_result_headers(result))

    async def _read_body(self, http_request: OpenAIRequest) -> Mapping[str, Any]:
        check_content_type(http_request.headers)
        limit = self._settings.gateway.body_bytes * BODY_LIMIT_FACTOR
        try:
            body = await read_body(
                http_request.headers,
                http_request.receive,
                limit=limit,
                seconds=self._settings.gateway.request_seconds,
            )
        except HttpError as fault:
            if fault.status == 413:
                raise build_too_large_error(limit) from fault
            raise
        return await parse_object(body)

    def _build_turn(
        self, http_request: OpenAIRequest, principal: Principal, request: ChatRequest
    ) -> CompletionTurn:
        """Collect everything about the request from the body, the headers and the path."""
        profiles = self._router.profiles
        _, suffix = split_model(request.model)
        theirs = tuple(name for name in profiles if profiles.may_use(name, principal.name))
        request_options = parse_request_options(
            request.request_options, http_request.headers, suffix=suffix, profiles=theirs
        )
        path_profile = http_request.path_info.profile
        if path_profile is not None and request_options.profile not in (None, path_profile):
            raise CompletionError(
                400, f"The path names the profile {path_profile}, the request another one.", "profile"
            )
        return CompletionTurn(
            request=request,
            request_options=request_options,
            principal=principal,
            access_scope=resolve_access_scope(
                principal,
                path_profile or request_options.profile,
                profiles,
                api_version=request_options.api_version,
            ),
            model=self._models.resolve_model(request.model),
            keyless=not self._models.default_model,
            authorization=get_caller_authorization(http_request.headers, principal),
        )

    async def _stream_answer(
        self, http_request: OpenAIRequest, turn: CompletionTurn, api_format: ApiFormat
    ) -> None:
        event_stream = LateEventStream(http_request.send, http_request.common)
        stream = api_format.open_stream(
            event_stream, turn.request, extension=self._settings.completions.extension
        )

        async def work(tasks: TaskGroup) -> None:
            tasks.start_soon(event_stream.keep_alive)
            try:
                await stream.finish(await self._runner.run_turn(turn, stream))
            except HttpError as fault:
                if not event_stream.opened:
                    raise
                await stream.fail(fault)
            except Exception:
                if not event_stream.opened:
                    raise
                log.exception("An answer broke off")
                await stream.fail(CompletionError(500, INTERNAL_ERROR_MESSAGE))

        await run_while_connected(http_request.receive, work)
        await event_stream.close()

    async def _respond_json(
        self, http_request: OpenAIRequest, body: JsonObject, headers: tuple[Header, ...] = ()
    ) -> None:
        mine = headers or _build_id_headers()
        await respond(http_request.send, 200, encode_json(body), (JSON_TYPE, *mine, *http_request.common))


def _build_id_headers() -> tuple[Header, ...]:
    return ((b"x-request-id", create_id("req").encode()),)


async def _respond_error(sender: ResponseSender, error: HttpError, common: tuple[Header, ...]) -> None:
    headers = (JSON_TYPE, *_build_id_headers(), *error.headers, *common)
    await respond(sender, error.status, encode_json(format_error(error)), headers)
