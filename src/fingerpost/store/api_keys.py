"""API keys of the gateway: holder, permissions and expiry."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, or_, select, update

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.records import LOCAL_NAME, Right, Scope, create_id, utc_now
from fingerpost.records.codec import from_json, to_json
from fingerpost.store.database import Database, insert_ignoring
from fingerpost.store.schema import api_keys
from fingerpost.store.writer import LossPolicy, StoreWriter

PREFIX: Final = "fp_"
RESERVED_NAMES: Final = frozenset({LOCAL_NAME})  # names not allowed for keys

_KEY_PATTERN = re.compile(r"fp_([0-9a-f]{32})_([A-Za-z0-9_-]{43})")
_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_DUMMY_DIGEST: Final = "0" * 64


@frozen
class ApiKey:
    """Properties of a key. The key text itself is not stored."""

    key_id: str
    name: str
    digest: str = field(repr=False)
    scope: Scope = field(default_factory=Scope)
    profiles: tuple[str, ...] = ()
    rights: tuple[Right, ...] = (Right.USE,)
    created: datetime
    expires: datetime | None = None
    last_used: datetime | None = None  # accurate to about an hour
    revoked: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Return whether the key is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)


@frozen
class _KeyAccess:
    """The permissions of a key, as stored."""

    scope: Scope
    profiles: tuple[str, ...] = ()
    rights: tuple[Right, ...] = (Right.USE,)


class ApiKeyStore:
    """Creates, finds and revokes keys."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer
        self._loss = LossPolicy()

    async def add(
        self,
        name: str,
        *,
        scope: Scope | None = None,
        profiles: Sequence[str] = (),
        rights: Sequence[Right] = (Right.USE,),
        expires: datetime | None = None,
        same_holder: bool = False,
        now: datetime | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key and return it with its text, which is not stored anywhere.

        Requests, approvals and conversations belong to the name. The name of an earlier key is therefore
        reused only for the `same_holder`; another holder would see data that belongs to the first one.

        Raises `ConfigError` when the name is invalid or in use.
        """
        moment = now or utc_now()
        _check_new_key(name, expires, moment)
        secret = secrets.token_urlsafe(32)
        made = ApiKey(
            key_id=create_id("key"),
            name=name,
            digest=_hash_secret(secret),
            scope=scope or Scope(),
            profiles=tuple(profiles),
            rights=tuple(rights),
            created=moment,
            expires=expires,
        )
        before = await self._writer.write(_add_keys, (made, same_holder))
        if before == "holds":
            message = f"there is a key named {name!r} already"
            hint = f"choose another name, or run `fingerpost keys revoke {name}` first"
            raise ConfigError(message, hint=hint)
        if before == "held":
            message = f"an earlier key was named {name!r}, and its requests and approvals belong to that name"
            hint = "choose another name; add --same-holder if this key is for the same person or program"
            raise ConfigError(message, hint=hint)
        return made, f"{PREFIX}{made.key_id.removeprefix('key_')}_{secret}"

    async def find(self, key: str, *, now: datetime | None = None) -> ApiKey | None:
        """Return the valid key with this text, or None. The time does not depend on whether the key is
        right.
        """
        parts = _KEY_PATTERN.fullmatch(key)
        key_id, secret = (f"key_{parts[1]}", parts[2]) if parts else ("", "")
        query = select(api_keys).where(api_keys.c.key_id == key_id)
        row = await self._database.read(lambda connection: connection.execute(query).one_or_none())
        known = None if row is None else _build_key(row)
        same = hmac.compare_digest(_hash_secret(secret), _DUMMY_DIGEST if known is None else known.digest)
        return known if known is not None and same and known.is_valid(now or utc_now()) else None

    async def get(self, key_id: str) -> ApiKey | None:
        """Return the key with this id, valid or not, or None."""
        query = select(api_keys).where(api_keys.c.key_id == key_id)
        row = await self._database.read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else _build_key(row)

    async def list_all(self) -> list[ApiKey]:
        """Return all keys, including revoked ones, in order of creation."""
        query = select(api_keys).order_by(api_keys.c.created, api_keys.c.key_id)
        return await self._database.read(
            lambda connection: [_build_key(row) for row in connection.execute(query)]
        )

    async def has_valid(self, *, now: datetime | None = None) -> bool:
        """Return whether there is any valid key."""
        query = select(api_keys.c.key_id).where(_build_live_condition(now or utc_now())).limit(1)
        return await self._database.read(lambda connection: connection.execute(query).first() is not None)

    async def revoke(self, name_or_id: str, *, now: datetime | None = None) -> bool:
        """Revoke the key. Return False if no active key has this name or id."""
        return await self._writer.write(_revoke_keys, (name_or_id, now or utc_now()))

    def note_use(self, key_id: str, at: datetime) -> None:
        """Record soon that the key was used. Returns at once. The record may be lost while the disk is
        blocked.
        """
        self._writer.write_soon(_update_last_used, (key_id, at), loss=self._loss)


def _check_new_key(name: str, expires: datetime | None, now: datetime) -> None:
    if _NAME_PATTERN.fullmatch(name) is None or name in RESERVED_NAMES:
        message = f"{name!r} cannot be the name of a key"
        hint = "use up to 64 letters, digits and . _ @ -, beginning with a letter or digit; not `local`"
        raise ConfigError(message, hint=hint)
    if expires is not None and expires <= now:
        message = "the expiry time is in the past"
        raise ConfigError(message, hint="give a future time, such as 30d")


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode("ascii")).hexdigest()


def _build_live_condition(now: datetime) -> ColumnElement[bool]:
    return and_(api_keys.c.revoked.is_(None), or_(api_keys.c.expires.is_(None), api_keys.c.expires > now))


def _add_keys(connection: Connection, new: Sequence[tuple[ApiKey, bool]]) -> list[str]:
    return [_add_key(connection, key, same_holder=same_holder) for key, same_holder in new]


def _add_key(connection: Connection, key: ApiKey, *, same_holder: bool) -> str:
    """Add a key and return "". Return "holds" if a valid key has this name, or "held" if an earlier one had
    it and `same_holder` is false.
    """
    # Write transactions are serialized, so two processes cannot both find the name free.
    named = select(api_keys.c.key_id).where(api_keys.c.name == key.name)
    if connection.execute(named.where(_build_live_condition(key.created))).first() is not None:
        return "holds"
    if not same_holder and connection.execute(named).first() is not None:
        return "held"
    row = {
        "key_id": key.key_id,
        "name": key.name,
        "digest": key.digest,
        "reach": to_json(_KeyAccess(scope=key.scope, profiles=key.profiles, rights=key.rights)).decode(),
        "created": key.created,
        "expires": key.expires,
    }
    connection.execute(insert_ignoring(connection, api_keys), row)
    return ""


def _revoke_keys(connection: Connection, wanted: Sequence[tuple[str, datetime]]) -> list[bool]:
    return [_revoke_key(connection, name_or_id, now) for name_or_id, now in wanted]


def _revoke_key(connection: Connection, name_or_id: str, now: datetime) -> bool:
    named = or_(api_keys.c.key_id == name_or_id, api_keys.c.name == name_or_id)
    change = update(api_keys).where(named, api_keys.c.revoked.is_(None)).values(revoked=now)
    return connection.execute(change).rowcount > 0


def _update_last_used(connection: Connection, uses: Sequence[tuple[str, datetime]]) -> list[None]:
    latest: dict[str, datetime] = {}
    for key_id, at in uses:
        latest[key_id] = max(at, latest.get(key_id, at))
    for key_id, at in latest.items():
        older = or_(api_keys.c.last_used.is_(None), api_keys.c.last_used < at)
        connection.execute(update(api_keys).where(api_keys.c.key_id == key_id, older).values(last_used=at))
    return [None] * len(uses)


def _build_key(row: Row[Any]) -> ApiKey:
    reach = from_json(_KeyAccess, row.reach)
    return ApiKey(
        key_id=row.key_id,
        name=row.name,
        digest=row.digest,
        scope=reach.scope,
        profiles=reach.profiles,
        rights=reach.rights,
        created=row.created,
        expires=row.expires,
        last_used=row.last_used,
        revoked=row.revoked,
    )
