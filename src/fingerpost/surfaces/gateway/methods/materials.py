"""Resources, templates, prompts and completions: listed from what is known, asked of whose they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

import anyio

from fingerpost.catalog.names import shown
from fingerpost.errors import FingerpostError, ServerError, ToolFailed
from fingerpost.events import EventSink, MaterialRead
from fingerpost.records import Json, JsonObject, as_valid_text
from fingerpost.surfaces.gateway.asking import AskedCalls
from fingerpost.surfaces.gateway.asking.reading import NOT_ALLOWED, no_asking
from fingerpost.surfaces.gateway.exchange import ClientRequest, Encoded, Exchange, Refusal
from fingerpost.surfaces.gateway.methods.bounds import slight
from fingerpost.surfaces.gateway.methods.levels import Levels
from fingerpost.surfaces.gateway.methods.links import linked_prompt
from fingerpost.surfaces.gateway.methods.passage import passage_of
from fingerpost.surfaces.gateway.methods.readiness import Readiness
from fingerpost.surfaces.gateway.methods.rendering import without_unseen
from fingerpost.surfaces.gateway.offers.materials import Kind, MaterialOffers, Shelf, Viewer
from fingerpost.surfaces.gateway.offers.pages import Hints

INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002  # before 2026-07-28; since then it is INVALID_PARAMS
LISTS: Final[Mapping[str, Kind]] = {
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
FRESH_MS: Final = 30_000
LONGEST_NAME: Final = 2_000  # in the record
LONGEST_DETAIL: Final = 1_000
GAVE_UP: Final = "the caller gave up before it was answered"
_NO_COMPLETIONS: Final = "completions cannot be asked about one by one, so none are given."
_NOTHING: Final[JsonObject] = {}
_OURS: Final = frozenset(("_meta", "inputResponses", "requestState"))
_REFERENCES: Final[Mapping[str, str]] = {"ref/prompt": "name", "ref/resource": "uri"}  # what names each


@dataclass(slots=True)
class _Record:
    """What there will be to say of one request."""

    began: float
    server: str = ""
    success: bool = True
    detail: str = ""


class MaterialMethods:
    """Everything servers offer besides tools."""

    def __init__(
        self,
        offers: MaterialOffers,
        *,
        calls: AskedCalls,
        events: EventSink,
        readiness: Readiness,
        levels: Levels,
        seconds: float,
    ) -> None:
        self._offers = offers
        self._calls = calls
        self._events = events
        self._readiness = readiness
        self._levels = levels
        self._seconds = seconds
        self.listed: Callable[[Viewer, Kind, bytes], None] | None = None  # told of every list that is given

    async def shelf(self, request: ClientRequest) -> Shelf:
        """What this caller may use, once servers had the time to say what they have."""
        await self._readiness.wait_for_materials()
        return self._offers.of(request.endpoint, request.principal)

    async def list(self, request: ClientRequest, exchange: Exchange) -> Encoded:
        """A page of resources, templates or prompts."""
        shelf = await self.shelf(request)
        hints = None
        if request.modern:
            private = request.principal.kind != "local" or request.principal.scope.bounded
            hints = Hints(milliseconds=FRESH_MS, private=private)
        kind = LISTS[request.method]
        pages = shelf.pages(kind)
        if self.listed is not None:
            self.listed(shelf.viewer, kind, pages.fingerprint)
        return pages.page(request.params.get("cursor"), hints)

    async def read(self, request: ClientRequest, exchange: Exchange) -> JsonObject:
        """`resources/read`, from the server that has it."""
        uri = text_of(request, "uri")
        with self._recorded(request, uri) as record:
            shelf = await self.shelf(request)
            where = shelf.collection.resource(uri)
            if where is None:
                raise not_found(request, uri)
            server, original = where
            result = await self._ask(request, exchange, shelf, server, {"uri": original}, record, uri=uri)
        result = await without_unseen(result)
        if uri != original:
            result = _readdressed(result, original, uri)
        return _kept_private(request, result) if request.modern else result

    async def prompt(self, request: ClientRequest, exchange: Exchange) -> JsonObject:
        """`prompts/get`, from the server that has it."""
        name = text_of(request, "name")
        with self._recorded(request, name) as record:
            shelf = await self.shelf(request)
            where = shelf.collection.prompt(name)
            if where is None:
                raise Refusal(INVALID_PARAMS, f"Unknown prompt: {name[:80]!r}; prompts/list has them")
            _check_texts(request, "arguments", request.params.get("arguments"))
            server, original = where
            result = await self._ask(request, exchange, shelf, server, {"name": original}, record)
        return await linked_prompt(await without_unseen(result), shelf.collection, server)

    async def complete(self, request: ClientRequest, exchange: Exchange) -> JsonObject:
        """`completion/complete`, from the server whose prompt or template it is about."""
        reference = _object(request.params.get("ref"))
        kind = reference.get("type")
        member = _REFERENCES.get(kind) if isinstance(kind, str) else None
        name = None if member is None else reference.get(member)
        if member is None or not isinstance(name, str):
            message = f"{request.method} needs a `ref`: ref/prompt and a `name`, or ref/resource and a `uri`"
            raise Refusal(INVALID_PARAMS, message)
        _check_completion(request)
        with self._recorded(request, name) as record:
            shelf = await self.shelf(request)
            collection = shelf.collection
            where = collection.prompt(name) if member == "name" else collection.template(name)
            if where is None:
                raise Refusal(INVALID_PARAMS, f"Unknown prompt or resource to complete: {name[:200]!r}")
            server, original = where
            if server in shelf.asked:  # a person would be asked at every key that is pressed
                record.server = server
                raise Refusal(NOT_ALLOWED, f"{shelf.asked[server]}: {_NO_COMPLETIONS} {no_asking(server)}")
            changed: JsonObject = {"ref": {**reference, member: original}}
            return await self._ask(request, exchange, shelf, server, changed, record)

    async def _ask(
        self,
        request: ClientRequest,
        exchange: Exchange,
        shelf: Shelf,
        server: str,
        changed: JsonObject,
        record: _Record,
        *,
        uri: str | None = None,
    ) -> JsonObject:
        """The request as it came, except for what is called otherwise there. A null is as good as nothing."""
        params: dict[str, Json] = {
            key: value for key, value in request.params.items() if key not in _OURS and value is not None
        }
        params.update(changed)
        record.server = server
        passage = passage_of(request, log_level=self._levels.of(request.session))
        try:
            result = await self._calls.ask(
                request,
                exchange,
                server,
                request.method,
                params,
                passage,
                timeout=self._seconds,
                reason=shelf.asked.get(server),
            )
        except ToolFailed as failed:
            raise refusal_of(failed, request, uri) from failed
        except FingerpostError as failed:
            raise unavailable(failed) from failed
        if result.get("resultType") == "input_required":
            record.detail = "waits for an answer"
        return result

    @contextmanager
    def _recorded(self, request: ClientRequest, name: str) -> Generator[_Record]:
        """Have a record written of what becomes of this request, whatever does."""
        record = _Record(began=time.monotonic())
        try:
            yield record
        except Refusal as refused:
            record.success, record.detail = False, refused.message
            raise
        except BaseException as failed:
            record.success, record.detail = False, GAVE_UP if _left(failed) else type(failed).__name__
            raise
        finally:
            self._events.emit(
                MaterialRead(
                    server=record.server,
                    method=request.method,
                    name=as_valid_text(name[:LONGEST_NAME]),
                    caller=request.principal.name,
                    success=record.success,
                    detail=as_valid_text(record.detail[:LONGEST_DETAIL]),
                    milliseconds=(time.monotonic() - record.began) * 1000,
                )
            )


def _left(failed: BaseException) -> bool:
    return isinstance(failed, anyio.get_cancelled_exc_class())


def text_of(request: ClientRequest, member: str) -> str:
    """A member of the params that must be there, and must be text."""
    value = request.params.get(member)
    if not isinstance(value, str) or not value:
        raise Refusal(INVALID_PARAMS, f"{request.method} needs `{member}`, as text")
    return value


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, Mapping) else _NOTHING


def _check_completion(request: ClientRequest) -> None:
    """Raises `Refusal` unless the argument and its surroundings are what the protocol says."""
    argument = _object(request.params.get("argument"))
    if not all(isinstance(argument.get(member), str) for member in ("name", "value")):
        message = f"{request.method} needs an `argument` with its `name` and its `value` so far, both as text"
        raise Refusal(INVALID_PARAMS, message)
    context = request.params.get("context")
    if context is not None and not isinstance(context, Mapping):
        raise Refusal(INVALID_PARAMS, f"the `context` of {request.method} must be an object")
    _check_texts(request, "context.arguments", _object(context).get("arguments"))


def _check_texts(request: ClientRequest, member: str, given: Json) -> None:
    """Raises `Refusal` for what is there and no object of texts.

    One connection to a server is for all callers, and there are servers that do not survive a number.
    """
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise Refusal(INVALID_PARAMS, f"the `{member}` of {request.method} must be an object, by name")
    for name, value in given.items():
        if not isinstance(value, str):
            raise Refusal(INVALID_PARAMS, f"{name[:80]!r} in the `{member}` of {request.method} must be text")


def not_found(request: ClientRequest, uri: str) -> Refusal:
    """In the words and the code of this client's era."""
    code = INVALID_PARAMS if request.modern else RESOURCE_NOT_FOUND
    return Refusal(code, "Resource not found", {"uri": uri})


def refusal_of(failed: ToolFailed, request: ClientRequest, uri: str | None) -> Refusal:
    """The server's own error; only what the eras say differently about a missing resource is translated."""
    code, data = failed.code, cast("Json", failed.data)
    if uri is not None:
        if request.modern and code == RESOURCE_NOT_FOUND:
            code = INVALID_PARAMS
        elif not request.modern and code == INVALID_PARAMS and isinstance(data, Mapping) and "uri" in data:
            code = RESOURCE_NOT_FOUND
    return Refusal(code, shown(str(failed)), slight(data))


def unavailable(failed: FingerpostError) -> Refusal:
    """Not the server's own answer: it could not be asked, or was too slow, or sent nonsense."""
    hint = f" ({failed.hint})" if failed.hint else ""
    data: JsonObject | None = {"server": failed.server} if isinstance(failed, ServerError) else None
    return Refusal(INTERNAL, shown(f"{failed}{hint}"), data)


def _readdressed(result: JsonObject, original: str, uri: str) -> JsonObject:
    """The contents under the address they were asked for by."""
    contents = result.get("contents")
    if not isinstance(contents, list | tuple):
        return result
    return {**result, "contents": [_as(entry, original, uri) for entry in contents]}


def _as(entry: Json, original: str, uri: str) -> Json:
    return {**entry, "uri": uri} if isinstance(entry, Mapping) and entry.get("uri") == original else entry


def _kept_private(request: ClientRequest, result: JsonObject) -> JsonObject:
    """With what 2026-07-28 wants said about keeping it. Behind a key nothing is for everybody."""
    if result.get("resultType") == "input_required":
        return result
    made: dict[str, Json] = {"ttlMs": 0, **result}
    if request.principal.kind != "local" or "cacheScope" not in made:
        made["cacheScope"] = "private"
    return made
