"""Resources, their templates, prompts and completions: `resources/*`, `prompts/*`, `completion/complete`."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, cast

import anyio
import anyio.to_thread
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS

from fingerpost.call.digest import ResultStore
from fingerpost.call.digest.results import fetch_asset, parse_asset_handle
from fingerpost.catalog.tool_names import escape_invisible
from fingerpost.errors import FingerpostError, ServerError, ToolFailed
from fingerpost.events import EventSink, MaterialRead
from fingerpost.records import CallContext, Json, JsonObject, create_id, to_valid_text
from fingerpost.surfaces.gateway.elicitation.approvals import explain_denied_reading
from fingerpost.surfaces.gateway.elicitation.calls import InputRequiredCalls
from fingerpost.surfaces.gateway.listing.pages import CacheHints
from fingerpost.surfaces.gateway.listing.resources import (
    ResourceKind,
    ResourceListing,
    ResourceViewer,
    VisibleResources,
)
from fingerpost.surfaces.gateway.protocol import (
    NOT_ALLOWED_CODE,
    RESOURCE_NOT_FOUND,
    ClientExchange,
    ClientRequest,
    EncodedResult,
    JsonRpcError,
)
from fingerpost.surfaces.gateway.request_context import LogLevels, Readiness, build_request_context
from fingerpost.surfaces.gateway.tool_results import (
    bound_error_data,
    escape_result_text,
    rewrite_prompt_links,
)

LIST_METHODS: Final[Mapping[str, ResourceKind]] = {
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
FRESH_MS: Final = 30_000
MAX_NAME_LENGTH: Final = 2_000  # characters in the audit record
MAX_DETAIL_LENGTH: Final = 1_000
CANCELLED_DETAIL: Final = "the caller stopped waiting for the answer"
_NO_COMPLETIONS: Final = "completions cannot be approved one by one, so none are given."
SOURCE_METHODS: Final = ("resources/read", "prompts/get")  # what they return is read by a model
_NOTHING: Final[JsonObject] = {}
_OWN_PARAMS: Final = frozenset(("_meta", "inputResponses", "requestState"))
_NO_TEXT: Final = frozenset(("uri", "mimeType", "type", "role", "data", "_meta"))
# The identifying member.
_REFERENCE_TYPES: Final[Mapping[str, str]] = {"ref/prompt": "name", "ref/resource": "uri"}


@dataclass(slots=True)
class _RequestRecord:
    """The audit record of one request, filled while it runs."""

    started: float
    server: str = ""
    success: bool = True
    detail: str = ""
    signs: tuple[str, ...] = ()


class NoteMaterial(Protocol):
    """Records a resource or prompt as a source of a conversation, and says what in it addresses the model."""

    async def __call__(
        self, server: str, method: str, name: str, text: str, context: CallContext
    ) -> tuple[str, ...]: ...


class ResourceMethods:
    """Answers requests for resources, templates, prompts and completions."""

    def __init__(
        self,
        listing: ResourceListing,
        *,
        calls: InputRequiredCalls,
        note_material: NoteMaterial,
        events: EventSink,
        readiness: Readiness,
        levels: LogLevels,
        seconds: float,
    ) -> None:
        self._listing = listing
        self._calls = calls
        self._note_material = note_material
        self._events = events
        self._readiness = readiness
        self._levels = levels
        self._seconds = seconds
        self.on_list_sent: Callable[[ResourceViewer, ResourceKind, bytes], None] | None = (
            None  # called for every list that is sent
        )

    async def get_resources(self, request: ClientRequest) -> VisibleResources:
        """Wait for the servers' lists, then return what this caller may use."""
        await self._readiness.wait_for_resources()
        return self._listing.get_resources(request.endpoint, request.principal)

    async def list_page(self, request: ClientRequest, exchange: ClientExchange) -> EncodedResult:
        """Return a page of resources, templates or prompts."""
        resources = await self.get_resources(request)
        hints = None
        if request.modern:
            private = request.principal.kind != "local" or request.principal.scope.bounded
            hints = CacheHints(milliseconds=FRESH_MS, private=private)
        kind = LIST_METHODS[request.method]
        pages = resources.get_pages(kind)
        if self.on_list_sent is not None:
            self.on_list_sent(resources.viewer, kind, pages.fingerprint)
        return pages.get_page(request.params.get("cursor"), hints)

    async def read_resource(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        """Answer `resources/read` from the server that has the resource."""
        uri = get_text_param(request, "uri")
        with self._record_request(request, uri) as record:
            resources = await self.get_resources(request)
            where = resources.collection.find_resource(uri)
            if where is None:
                raise build_not_found_error(request, uri)
            server, original = where
            result = await self._ask_server(
                request, exchange, resources, server, {"uri": original}, record, uri=uri
            )
            await self._note_source(request, record, original, result)
        result = await escape_result_text(result)
        if uri != original:
            result = _rewrite_uris(result, original, uri)
        return _add_cache_hints(request, result) if request.modern else result

    async def get_prompt(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        """Answer `prompts/get` from the server that has the prompt."""
        name = get_text_param(request, "name")
        with self._record_request(request, name) as record:
            resources = await self.get_resources(request)
            where = resources.collection.find_prompt(name)
            if where is None:
                raise JsonRpcError(INVALID_PARAMS, f"Unknown prompt: {name[:80]!r}; prompts/list has them")
            _check_text_values(request, "arguments", request.params.get("arguments"))
            server, original = where
            result = await self._ask_server(request, exchange, resources, server, {"name": original}, record)
            await self._note_source(request, record, original, result)
        return await rewrite_prompt_links(await escape_result_text(result), resources.collection, server)

    async def complete(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        """Answer `completion/complete` from the server that has the prompt or template."""
        reference = _to_object(request.params.get("ref"))
        kind = reference.get("type")
        member = _REFERENCE_TYPES.get(kind) if isinstance(kind, str) else None
        name = None if member is None else reference.get(member)
        if member is None or not isinstance(name, str):
            message = f"{request.method} needs a `ref`: ref/prompt and a `name`, or ref/resource and a `uri`"
            raise JsonRpcError(INVALID_PARAMS, message)
        _check_completion(request)
        with self._record_request(request, name) as record:
            resources = await self.get_resources(request)
            collection = resources.collection
            where = collection.find_prompt(name) if member == "name" else collection.find_template(name)
            if where is None:
                raise JsonRpcError(INVALID_PARAMS, f"Unknown prompt or resource to complete: {name[:200]!r}")
            server, original = where
            if server in resources.approval_reasons:  # otherwise every keystroke would ask for an approval
                record.server = server
                raise JsonRpcError(
                    NOT_ALLOWED_CODE,
                    f"{resources.approval_reasons[server]}: {_NO_COMPLETIONS} "
                    f"{explain_denied_reading(server)}",
                )
            changed: JsonObject = {"ref": {**reference, member: original}}
            return await self._ask_server(request, exchange, resources, server, changed, record)

    async def _ask_server(
        self,
        request: ClientRequest,
        exchange: ClientExchange,
        resources: VisibleResources,
        server: str,
        changed: JsonObject,
        record: _RequestRecord,
        *,
        uri: str | None = None,
    ) -> JsonObject:
        """Forward the request with the server's own names. Null members are omitted."""
        params: dict[str, Json] = {
            key: value
            for key, value in request.params.items()
            if key not in _OWN_PARAMS and value is not None
        }
        params.update(changed)
        record.server = server
        request_context = build_request_context(request, log_level=self._levels.get_level(request.session))
        try:
            result = await self._calls.ask_server(
                request,
                exchange,
                server,
                request.method,
                params,
                request_context,
                timeout=self._seconds,
                reason=resources.approval_reasons.get(server),
            )
        except ToolFailed as failed:
            error = build_server_error(failed, request, uri)
            if request.method in SOURCE_METHODS:
                told: JsonObject = {"contents": [error.message, error.data]}
                await self._note_source(request, record, uri or str(params.get("name")), told)
            raise error from failed
        except FingerpostError as failed:
            raise build_unavailable_error(failed) from failed
        if result.get("resultType") == "input_required":
            record.detail = "waits for an answer"
        return result

    async def _note_source(
        self, request: ClientRequest, record: _RequestRecord, name: str, result: JsonObject
    ) -> None:
        """Record the source before its text is sent, as for results of tools."""
        if result.get("resultType") != "input_required":
            context, text = build_reading_context(request), collect_texts(result)
            record.signs = await self._note_material(record.server, request.method, name, text, context)

    @contextmanager
    def _record_request(self, request: ClientRequest, name: str) -> Generator[_RequestRecord]:
        """Write an audit record of this request, also if it fails."""
        record = _RequestRecord(started=time.monotonic())
        try:
            yield record
        except JsonRpcError as refused:
            record.success, record.detail = False, refused.message
            raise
        except BaseException as failed:
            record.success, record.detail = (
                False,
                CANCELLED_DETAIL if _is_cancellation(failed) else type(failed).__name__,
            )
            raise
        finally:
            self._events.emit(
                MaterialRead(
                    server=record.server,
                    method=request.method,
                    name=to_valid_text(name[:MAX_NAME_LENGTH]),
                    caller=request.principal.name,
                    success=record.success,
                    detail=to_valid_text(record.detail[:MAX_DETAIL_LENGTH]),
                    milliseconds=(time.monotonic() - record.started) * 1000,
                    signs=record.signs,
                )
            )


def build_reading_context(request: ClientRequest) -> CallContext:
    """Build the context of a request that reads something besides tools: its conversation and caller."""
    return CallContext(
        call_id=create_id("cal"),
        conversation=request.session,
        caller=request.principal.name,
        asker=request.principal_key,
    )


def collect_texts(result: JsonObject) -> str:
    """Return all texts of a resource or prompt. Bytes that are text count, too."""
    texts: list[str] = []
    waiting: list[Json] = [result.get("contents"), result.get("messages"), result.get("description")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, Mapping):
            waiting.extend(
                _decode_text(item) if key == "blob" else item
                for key, item in value.items()
                if key not in _NO_TEXT
            )
        elif isinstance(value, Sequence):
            waiting.extend(value)
    return "\n".join(reversed(texts))


def _decode_text(blob: Json) -> str:
    try:
        return base64.b64decode(blob).decode() if isinstance(blob, str) else ""
    except ValueError:  # no base64, or no text
        return ""


def _is_cancellation(error: BaseException) -> bool:
    return isinstance(error, anyio.get_cancelled_exc_class())


def get_text_param(request: ClientRequest, member: str) -> str:
    """Return a required text member of the params. Raises `JsonRpcError`."""
    value = request.params.get(member)
    if not isinstance(value, str) or not value:
        raise JsonRpcError(INVALID_PARAMS, f"{request.method} needs `{member}`, as text")
    return value


def _to_object(value: Json) -> JsonObject:
    return value if isinstance(value, Mapping) else _NOTHING


def _check_completion(request: ClientRequest) -> None:
    """Raise `JsonRpcError` unless the argument and its context are valid."""
    argument = _to_object(request.params.get("argument"))
    if not all(isinstance(argument.get(member), str) for member in ("name", "value")):
        message = f"{request.method} needs an `argument` with its `name` and its `value` so far, both as text"
        raise JsonRpcError(INVALID_PARAMS, message)
    context = request.params.get("context")
    if context is not None and not isinstance(context, Mapping):
        raise JsonRpcError(INVALID_PARAMS, f"the `context` of {request.method} must be an object")
    _check_text_values(request, "context.arguments", _to_object(context).get("arguments"))


def _check_text_values(request: ClientRequest, member: str, given: Json) -> None:
    """Raise `JsonRpcError` unless the value is missing or an object of texts.

    All callers share one connection to a server, and some servers crash on a number.
    """
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise JsonRpcError(INVALID_PARAMS, f"the `{member}` of {request.method} must be an object, by name")
    for name, value in given.items():
        if not isinstance(value, str):
            raise JsonRpcError(
                INVALID_PARAMS, f"{name[:80]!r} in the `{member}` of {request.method} must be text"
            )


def build_not_found_error(request: ClientRequest, uri: str) -> JsonRpcError:
    """Build the error with the code of this client's era."""
    code = INVALID_PARAMS if request.modern else RESOURCE_NOT_FOUND
    return JsonRpcError(code, "Resource not found", {"uri": uri})


def build_server_error(error: ToolFailed, request: ClientRequest, uri: str | None) -> JsonRpcError:
    """Build the error from the server's own. Only the code of a missing resource differs between eras."""
    code, data = error.code, cast("Json", error.data)
    if uri is not None:
        if request.modern and code == RESOURCE_NOT_FOUND:
            code = INVALID_PARAMS
        elif not request.modern and code == INVALID_PARAMS and isinstance(data, Mapping) and "uri" in data:
            code = RESOURCE_NOT_FOUND
    return JsonRpcError(code, escape_invisible(str(error)), bound_error_data(data))


def build_unavailable_error(error: FingerpostError) -> JsonRpcError:
    """Build the error for a server that could not be asked, timed out, or sent an invalid response."""
    hint = f" ({error.hint})" if error.hint else ""
    data: JsonObject | None = {"server": error.server} if isinstance(error, ServerError) else None
    return JsonRpcError(INTERNAL_ERROR, escape_invisible(f"{error}{hint}"), data)


def _rewrite_uris(result: JsonObject, original: str, uri: str) -> JsonObject:
    """Replace the server's own URI in the contents by the requested one."""
    contents = result.get("contents")
    if not isinstance(contents, list | tuple):
        return result
    return {**result, "contents": [_rewrite_uri(entry, original, uri) for entry in contents]}


def _rewrite_uri(entry: Json, original: str, uri: str) -> Json:
    return {**entry, "uri": uri} if isinstance(entry, Mapping) and entry.get("uri") == original else entry


def _add_cache_hints(request: ClientRequest, result: JsonObject) -> JsonObject:
    """Add cache hints (2026-07-28). Private: the caller has a key, or the server gave no cache scope."""
    if result.get("resultType") == "input_required":
        return result
    made: dict[str, Json] = {"ttlMs": 0, **result}
    if request.principal.kind != "local" or "cacheScope" not in made:
        made["cacheScope"] = "private"
    return made


async def read_kept_resource(results: ResultStore, request: ClientRequest) -> tuple[JsonObject, bool] | None:
    """Return the stored result at this URI and whether it is private, or None if the URI is not ours.

    Raises `JsonRpcError`.
    """
    uri = request.params.get("uri")
    handle = parse_asset_handle(uri) if isinstance(uri, str) else None
    if not isinstance(uri, str) or handle is None:
        return None
    found = await fetch_asset(results, handle, caller=request.principal.name)
    if found is None:
        raise build_not_found_error(request, uri)
    encoded = await anyio.to_thread.run_sync(base64.b64encode, found.data)
    contents: JsonObject = {"uri": uri, "mimeType": found.media_type, "blob": encoded.decode()}
    hints: JsonObject = {"ttlMs": 0, "cacheScope": "private"} if request.modern else {}
    return {"contents": [contents], **hints}, found.private
