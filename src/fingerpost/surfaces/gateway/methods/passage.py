"""What of a request goes along to the server, untouched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from fingerpost.records import Json, JsonObject
from fingerpost.servers.caller import CALL_ID, RequestContext
from fingerpost.surfaces.gateway.exchange import ClientRequest, JsonRpcError
from fingerpost.surfaces.gateway.methods.levels import DEFAULT_LEVEL

LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
INTENT_KEY: Final = "fingerpost/intent"
MAX_INTENT_LENGTH: Final = 4000
FALLBACK_KEY: Final = "fingerpost/fallback"
IDEMPOTENCY_META_KEY: Final = "fingerpost/idempotency-key"
INVALID_PARAMS: Final = -32602

# What the protocol itself says between this client and us. The server hears its own from us.
_OWN_META_KEYS: Final = frozenset(
    (
        "progressToken",
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/clientCapabilities",
        LOG_LEVEL_KEY,
        INTENT_KEY,
        FALLBACK_KEY,
        IDEMPOTENCY_META_KEY,
        CALL_ID,
    )
)
_NOTHING: Final[JsonObject] = {}


def get_meta(request: ClientRequest) -> JsonObject:
    """The request's `_meta`, or nothing where it has none."""
    meta = request.params.get("_meta")
    if isinstance(meta, dict):
        return meta
    return cast("JsonObject", meta) if isinstance(meta, Mapping) else _NOTHING


def get_intent(request: ClientRequest) -> str:
    """What the person wants, where the client says so: a long result keeps what is about it."""
    intent = get_meta(request).get(INTENT_KEY)
    return intent[:MAX_INTENT_LENGTH] if isinstance(intent, str) else ""


def get_idempotency_key(request: ClientRequest) -> str | None:
    """The key under which the client may send the same call again. Anything but a text is refused."""
    key = get_meta(request).get(IDEMPOTENCY_META_KEY)
    if key is not None and not isinstance(key, str):
        raise JsonRpcError(INVALID_PARAMS, f"`{IDEMPOTENCY_META_KEY}` in `_meta` must be a text")
    return key


def build_request_context(request: ClientRequest, *, log_level: str | None = None) -> RequestContext:
    """What goes along. `log_level` is the session's, in the era that has sessions; None: it set none."""
    params, meta = request.params, get_meta(request)
    kept: dict[str, Json] = {key: value for key, value in meta.items() if key not in _OWN_META_KEYS}
    if request.modern:
        asked = meta.get(LOG_LEVEL_KEY)
        log_level = asked if isinstance(asked, str) else None
        return RequestContext(
            meta=kept,
            input_responses=_get_input_responses(params),
            request_state=_get_request_state(params),
            log_level=log_level,
        )
    return RequestContext(meta=kept, log_level=log_level or DEFAULT_LEVEL, usual_level=log_level is None)


def _get_input_responses(params: JsonObject) -> JsonObject | None:
    """Answers to a server's questions. Anything but an object is refused: it must not pass for none."""
    if "inputResponses" not in params:
        return None
    answers = params["inputResponses"]
    if not isinstance(answers, Mapping):
        raise JsonRpcError(
            INVALID_PARAMS, "`inputResponses` must be an object: the answers, by their questions"
        )
    return answers


def _get_request_state(params: JsonObject) -> str | None:
    if "requestState" not in params:
        return None
    state = params["requestState"]
    if not isinstance(state, str):
        raise JsonRpcError(INVALID_PARAMS, "`requestState` must be the text that came with the questions")
    return state
