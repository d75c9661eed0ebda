"""`requestState`: encrypted state that a client sends with the next round of its call. Usable once."""

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

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fingerpost.frozen import frozen
from fingerpost.records import Grant, JsonObject, utc_now
from fingerpost.store import Store
from fingerpost.surfaces.gateway.protocol import ClientRequest

STATE_PREFIX: Final = "fp1."  # format version; also distinguishes our states from those of servers
CLOCK_SKEW_S: Final = 60.0  # clocks of hosts that share a store rarely differ more
MAX_STATE_LENGTH: Final = 1024 * 1024

_NONCE_BYTES: Final = 12
_KEY_INFO: Final = b"fingerpost/request-state/1"

StateKind = Literal["approval", "parked", "further", "sign_in"]


class InvalidRequestState(Exception):
    """The state is not accepted. The message completes "this requestState …".

    `started`: the call had started, or may have; the error must not claim that nothing was run.
    """

    def __init__(self, message: str, *, started: bool = False) -> None:
        super().__init__(message)
        self.started = started


@frozen(kw_only=False)
class StateBinding:
    """The caller and the call a state is bound to. Holds digests, because arguments may be long."""

    caller: str
    call: str

    @classmethod
    def from_request(cls, request: ClientRequest) -> StateBinding:
        """Return what the next round must have in common with this request."""
        who = [request.principal.kind, request.principal.name, request.endpoint.path]
        params = request.params
        what = [request.method, params.get("name"), params.get("uri"), params.get("arguments")]
        return cls(caller=_hash_value(who), call=_hash_value(what))


@frozen
class RequestState:
    """The decrypted content of a state."""

    state_id: str
    kind: StateKind
    subject: str  # the id of a waiting approval or of a suspended call, or the server to sign in to
    expires: float  # seconds since 1970
    carried: JsonObject | None = None  # the server's own state, and answers for it


def _hash_value(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_own_state(state: str | None) -> bool:
    """Return whether the state has our prefix. A server that uses our prefix only harms itself."""
    return state is not None and state.startswith(STATE_PREFIX)


class RequestStateCipher:
    """Encrypts states, and decrypts its own."""

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
        """Return an encrypted state for the client, and its id."""
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
        # ASCII, so that lone surrogates in a server's state are preserved.
        payload = json.dumps(claims, separators=(",", ":"), default=dict).encode()
        return STATE_PREFIX + _encode_base64(
            nonce + self._cipher.encrypt(nonce, payload, STATE_PREFIX.encode())
        ), state_id

    def open(self, state: str, binding: StateBinding) -> RequestState:
        """Return the decrypted state. Raises `InvalidRequestState` if it is foreign, expired or misplaced."""
        claims = self._decrypt(state)
        if claims["caller"] != binding.caller:
            raise InvalidRequestState("was made for another caller or another endpoint")
        if claims["call"] != binding.call:
            raise InvalidRequestState("belongs to another call: name and arguments must stay as they were")
        now = self._clock()
        if claims["made"] > now + CLOCK_SKEW_S or claims["expires"] <= now:
            raise InvalidRequestState("has expired", started=True)
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
    """Decode only the exact form of `_encode_base64`: a state has one spelling, base64 has unused bits."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as wrong:
        raise ValueError(str(wrong)) from None
    if _encode_base64(raw) != text:
        raise ValueError("not the canonical spelling")
    return raw


# The record must outlive the state; otherwise a slow clock would permit a second use.
_EXTRA_LIFETIME: Final = timedelta(seconds=2 * CLOCK_SKEW_S)


async def mark_first_use(store: Store, request_state: RequestState) -> bool:
    """Record the use of a state. Return whether this is the first use."""
    return await store.grants.add_and_spend(
        Grant(
            grant_id=f"gnt_{request_state.state_id}",
            granted_by="gateway: leave to answer one question",
            granted_at=utc_now(),
            expires=datetime.fromtimestamp(request_state.expires, UTC) + _EXTRA_LIFETIME,
            call_fingerprint=f"state {request_state.state_id}",
        )
    )
