"""`requestState`: encrypted state that a client carries to the next round of its call, usable once."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, cast

import anyio.to_thread
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fingerpost.frozen import frozen
from fingerpost.records import Grant, JsonObject, utc_now
from fingerpost.store import Store, read_secret
from fingerpost.surfaces.gateway.protocol import ClientRequest

STATE_PREFIX: Final = "fp1."  # the version; also what tells our states from those of servers
SECRET_NAME: Final = "gateway/request-state"  # noqa: S105 - a name; no server can have it: it holds a `/`
CLOCK_SKEW_S: Final = 60.0  # clocks of machines that share a store are rarely further apart
MAX_STATE_LENGTH: Final = 1024 * 1024

_SECRET_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_KEY_INFO: Final = b"fingerpost/request-state/1"

StateKind = Literal["approval", "parked", "further"]


class InvalidRequestState(Exception):
    """The state is not taken. The text completes "this requestState …".

    `started`: the call it was made for had begun, or may have; nobody may be told that nothing was run.
    """

    def __init__(self, message: str, *, started: bool = False) -> None:
        super().__init__(message)
        self.started = started


@frozen(kw_only=False)
class StateBinding:
    """Whom and what a state is for. Digests: the arguments of a call may be long."""

    caller: str
    call: str


@frozen
class RequestState:
    """What is inside of a state."""

    state_id: str
    kind: StateKind
    subject: str  # the id of a waiting approval, or of a parked call
    expires: float  # seconds since 1970
    carried: JsonObject | None = None  # of the server's own: its state, and answers meant for it


def build_binding(request: ClientRequest) -> StateBinding:
    """What the next round must have in common with this one."""
    who = [request.principal.kind, request.principal.name, request.endpoint.path]
    params = request.params
    what = [request.method, params.get("name"), params.get("uri"), params.get("arguments")]
    return StateBinding(caller=_hash_value(who), call=_hash_value(what))


def _hash_value(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_own_state(state: str | None) -> bool:
    """Whether a state claims to be one of ours. A server that writes our prefix only harms itself."""
    return state is not None and state.startswith(STATE_PREFIX)


async def load_installation_secret(store: Store) -> bytes:
    """The secret of this installation, made when there is none. The first process wins.

    It rests in a file of its own beside an SQLite database, so that a copy of the database opens nothing.
    One that an older version kept in the database is not used again: what was deleted there can be found
    for long. Several hosts that share a PostgreSQL database share the secret in it.
    """
    file = store.location.secret
    if file is None:
        return await store.tokens.put_if_absent(SECRET_NAME, os.urandom(_SECRET_BYTES))
    await store.tokens.remove(SECRET_NAME)
    return await anyio.to_thread.run_sync(read_secret, file, _SECRET_BYTES)


class RequestStateCipher:
    """Makes states, and opens those it made."""

    def __init__(self, secret: bytes, *, clock: Callable[[], float] = time.time) -> None:
        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=_KEY_INFO).derive(secret)
        self._cipher = AESGCM(key)
        self._clock = clock

    def seal(
        self,
        kind: StateKind,
        subject: str,
        binding: StateBinding,
        *,
        seconds: float,
        carried: JsonObject | None = None,
    ) -> tuple[str, str]:
        """A state for the client to carry, and its id."""
        now = self._clock()
        state_id = os.urandom(16).hex()
        claims = {
            "id": state_id,
            "kind": kind,
            "subject": subject,
            "caller": binding.caller,
            "call": binding.call,
            "made": now,
            "expires": now + seconds,
            "carried": carried,
        }
        nonce = os.urandom(_NONCE_BYTES)
        # ASCII, so that half a character in a server's own state comes back as it was.
        payload = json.dumps(claims, separators=(",", ":"), default=dict).encode()
        return STATE_PREFIX + _encode_base64(
            nonce + self._cipher.encrypt(nonce, payload, STATE_PREFIX.encode())
        ), state_id

    def open(self, state: str, binding: StateBinding) -> RequestState:
        """What is inside. Raises `InvalidRequestState` unless this seal made it, for this call, not long
        ago.
        """
        claims = self._decrypt(state)
        if claims["caller"] != binding.caller:
            message = "was made for somebody else, or for another endpoint"
            raise InvalidRequestState(message)
        if claims["call"] != binding.call:
            message = "belongs to another call: name and arguments must stay as they were"
            raise InvalidRequestState(message)
        now = self._clock()
        if claims["made"] > now + CLOCK_SKEW_S or claims["expires"] <= now:
            message = "has expired"
            raise InvalidRequestState(message, started=True)
        return RequestState(
            state_id=claims["id"],
            kind=claims["kind"],
            subject=claims["subject"],
            expires=claims["expires"],
            carried=claims["carried"],
        )

    def _decrypt(self, state: str) -> dict[str, Any]:
        message = "was changed on its way, or not made by this gateway"
        if not is_own_state(state) or len(state) > MAX_STATE_LENGTH:
            raise InvalidRequestState(message)
        try:
            raw = _decode_base64(state[len(STATE_PREFIX) :])
            payload = self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], STATE_PREFIX.encode())
        except (InvalidTag, ValueError):
            raise InvalidRequestState(message) from None
        return cast("dict[str, Any]", json.loads(payload))


def _encode_base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode_base64(text: str) -> bytes:
    """Only the one spelling that `_encode_base64` writes: base64 has spare bits, and a state has no twins."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as wrong:
        raise ValueError(str(wrong)) from None
    if _encode_base64(raw) != text:
        message = "not the canonical spelling"
        raise ValueError(message)
    return raw


# A grant must outlive the state it stands for, or a slow clock would let the state be used again.
_REMEMBER_EXTRA_S: Final = timedelta(seconds=2 * CLOCK_SKEW_S)


async def mark_first_use(store: Store, request_state: RequestState) -> bool:
    """Whether this state is used now for the first time. It never is again."""
    return await store.grants.add_and_spend(
        Grant(
            grant_id=f"gnt_{request_state.state_id}",
            granted_by="gateway: leave to answer one question",
            granted_at=utc_now(),
            expires=datetime.fromtimestamp(request_state.expires, UTC) + _REMEMBER_EXTRA_S,
            call_fingerprint=f"state {request_state.state_id}",
        )
    )
