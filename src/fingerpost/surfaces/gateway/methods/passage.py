"""What of a request goes along to the server, untouched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from fingerpost.records import Json, JsonObject
from fingerpost.servers.caller import CALL_ID, Passage
from fingerpost.surfaces.gateway.exchange import ClientRequest, Refusal
from fingerpost.surfaces.gateway.methods.levels import USUAL

LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
INTENT: Final = "fingerpost/intent"
LONGEST_INTENT: Final = 4000
FALLBACK: Final = "fingerpost/fallback"
IDEMPOTENCY_KEY: Final = "fingerpost/idempotency-key"
INVALID_PARAMS: Final = -32602

# What the protocol itself says between this client and us. The server hears its own from us.
_OURS: Final = frozenset(
    (
        "progressToken",
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/clientCapabilities",
        LOG_LEVEL,
        INTENT,
        FALLBACK,
        IDEMPOTENCY_KEY,
        CALL_ID,
    )
)
_NOTHING: Final[JsonObject] = {}


def meta_of(request: ClientRequest) -> JsonObject:
    """The request's `_meta`, or nothing where it has none."""
    meta = request.params.get("_meta")
    if isinstance(meta, dict):
        return meta
    return cast("JsonObject", meta) if isinstance(meta, Mapping) else _NOTHING


def intent_of(request: ClientRequest) -> str:
    """What the person wants, where the client says so: a long result keeps what is about it."""
    intent = meta_of(request).get(INTENT)
    return intent[:LONGEST_INTENT] if isinstance(intent, str) else ""


def idempotency_key_of(request: ClientRequest) -> str | None:
    """The key under which the client may send the same call again. Anything but a text is refused."""
    key = meta_of(request).get(IDEMPOTENCY_KEY)
    if key is not None and not isinstance(key, str):
        raise Refusal(INVALID_PARAMS, f"`{IDEMPOTENCY_KEY}` in `_meta` must be a text")
    return key


def passage_of(request: ClientRequest, *, log_level: str | None = None) -> Passage:
    """What goes along. `log_level` is the session's, in the era that has sessions; None: it set none."""
    params, meta = request.params, meta_of(request)
    kept: dict[str, Json] = {key: value for key, value in meta.items() if key not in _OURS}
    if request.modern:
        asked = meta.get(LOG_LEVEL)
        log_level = asked if isinstance(asked, str) else None
        return Passage(
            meta=kept,
            input_responses=_answers(params),
            request_state=_state(params),
            log_level=log_level,
        )
    return Passage(meta=kept, log_level=log_level or USUAL, usual_level=log_level is None)


def _answers(params: JsonObject) -> JsonObject | None:
    """Answers to a server's questions. Anything but an object is refused: it must not pass for none."""
    if "inputResponses" not in params:
        return None
    answers = params["inputResponses"]
    if not isinstance(answers, Mapping):
        raise Refusal(INVALID_PARAMS, "`inputResponses` must be an object: the answers, by their questions")
    return answers


def _state(params: JsonObject) -> str | None:
    if "requestState" not in params:
        return None
    state = params["requestState"]
    if not isinstance(state, str):
        raise Refusal(INVALID_PARAMS, "`requestState` must be the text that came with the questions")
    return state
