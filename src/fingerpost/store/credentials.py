"""API keys of the gateway, sign-in tokens of servers, and the secret that encrypts the tokens."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
from collections.abc import Sequence
from dataclasses import field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
from sqlalchemy import ColumnElement, Connection, and_, delete, insert, or_, select, update

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.records import (
    LOCAL_NAME,
    AccessRole,
    Principal,
    Right,
    Scope,
    combine_rights,
    create_id,
    utc_now,
)
from fingerpost.records.codec import from_json, to_json
from fingerpost.store.database import StoreLocation, insert_ignoring, make_private
from fingerpost.store.schema import api_keys, tokens
from fingerpost.store.writer import StorePart

PREFIX: Final = "fp_"
RESERVED_NAMES: Final = frozenset({LOCAL_NAME})  # names not allowed for keys

_KEY_PATTERN = re.compile(r"fp_([0-9a-f]{32})_([A-Za-z0-9_-]{43})")
_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_MAX_USER_LENGTH: Final = 200
_DUMMY_DIGEST: Final = "0" * 64

# Names in the table of tokens. No server can have them, because they contain a `/`, and names of users'
# tokens begin otherwise.
SECRET_NAME: Final = "gateway/request-state"  # noqa: S105 - a name
SECRET_DIGEST_NAME: Final = "gateway/request-state-digest"  # noqa: S105 - a name

_SECRET_BYTES: Final = 32

logger = logging.getLogger("fingerpost.store")


@frozen
class ApiKey:
    """Properties of a key. The key text itself is not stored."""

    key_id: str
    name: str
    digest: str = field(repr=False)
    scope: Scope = field(default_factory=Scope)
    profiles: tuple[str, ...] = ()
    rights: tuple[Right, ...] = (Right.USE,)  # beside those of the roles
    roles: tuple[AccessRole, ...] = ()
    user: str = ""  # its owner, if other than `name`
    created: datetime
    expires: datetime | None = None
    last_used: datetime | None = None  # accurate to about an hour
    revoked: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Return whether the key is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)

    def build_principal(self) -> Principal:
        """Return the holder of the key as a caller."""
        return Principal(
            name=self.name,
            kind="key",
            scope=self.scope,
            profiles=self.profiles,
            rights=combine_rights(self.roles, self.rights),
            user=self.user,
        )


@frozen
class _KeyAccess:
    """The permissions of a key, as stored."""

    scope: Scope
    profiles: tuple[str, ...] = ()
    rights: tuple[Right, ...] = (Right.USE,)
    roles: tuple[AccessRole, ...] = ()
    user: str = ""


_ACCESS_FIELDS: Final = tuple(one.name for one in fields(_KeyAccess))


class ApiKeyStore(StorePart):
    """Creates, finds and revokes keys."""

    async def add(
        self,
        name: str,
        *,
        scope: Scope | None = None,
        profiles: Sequence[str] = (),
        rights: Sequence[Right] = (Right.USE,),
        roles: Sequence[AccessRole] = (),
        user: str = "",
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
        _check_new_key(name, user, expires, moment)
        secret = secrets.token_urlsafe(32)
        made = ApiKey(
            key_id=create_id("key"),
            name=name,
            digest=_hash_secret(secret),
            scope=scope or Scope(),
            profiles=tuple(profiles),
            rights=tuple(rights),
            roles=tuple(roles),
            user=user,
            created=moment,
            expires=expires,
        )
        before = await self._write(_add_key, made, same_holder=same_holder)
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
        """Return the valid key with this text, or None, in the same time for right and wrong keys."""
        parts = _KEY_PATTERN.fullmatch(key)
        key_id, secret = (f"key_{parts[1]}", parts[2]) if parts else ("", "")
        known = await self.get(key_id)
        same = hmac.compare_digest(_hash_secret(secret), _DUMMY_DIGEST if known is None else known.digest)
        return known if known is not None and same and known.is_valid(now or utc_now()) else None

    async def get(self, key_id: str) -> ApiKey | None:
        """Return the key with this id, valid or not, or None."""
        query = select(api_keys).where(api_keys.c.key_id == key_id)
        found = await self._read_mappings(query)
        return _build_key(found[0]) if found else None

    async def list_all(self) -> list[ApiKey]:
        """Return all keys, including revoked ones, in order of creation."""
        query = select(api_keys).order_by(api_keys.c.created, api_keys.c.key_id)
        return [_build_key(values) for values in await self._read_mappings(query)]

    async def list_owners(self, *, now: datetime | None = None) -> dict[str, str]:
        """Return the owner of each valid key that has another name, by that name."""
        query = select(api_keys.c.name, api_keys.c.reach).where(
            api_keys.c.reach.not_like('%"user":""%'), _build_live_condition(now or utc_now())
        )
        keys = await self._read_records(query, lambda row: (row.name, from_json(_KeyAccess, row.reach).user))
        return {name: user for name, user in keys if user}

    async def has_valid(self, *, now: datetime | None = None) -> bool:
        """Return whether there is any valid key."""
        valid = select(api_keys.c.key_id).where(_build_live_condition(now or utc_now())).limit(1)
        return await self._read_value(valid) is not None

    async def change(self, key: ApiKey) -> bool:
        """Store the changed access and expiry of a key. Return False if it is revoked or does not exist."""
        change = update(api_keys).where(api_keys.c.key_id == key.key_id, api_keys.c.revoked.is_(None))
        return await self._execute(change.values(reach=_build_access(key), expires=key.expires)) > 0

    async def revoke(self, name_or_id: str, *, now: datetime | None = None) -> bool:
        """Revoke the key. Return False if no active key has this name or id."""
        named = or_(api_keys.c.key_id == name_or_id, api_keys.c.name == name_or_id)
        change = update(api_keys).where(named, api_keys.c.revoked.is_(None)).values(revoked=now or utc_now())
        return await self._execute(change) > 0

    def note_use(self, key_id: str, at: datetime) -> None:
        """Record soon that the key was used. Returns at once. The record may be lost."""
        self._write_soon(_update_last_used, key_id, at)


def _check_new_key(name: str, user: str, expires: datetime | None, now: datetime) -> None:
    if _NAME_PATTERN.fullmatch(name) is None or name in RESERVED_NAMES:
        message = f"{name!r} cannot be the name of a key"
        hint = "use up to 64 letters, digits and . _ @ -, beginning with a letter or digit; not `local`"
        raise ConfigError(message, hint=hint)
    if len(user) > _MAX_USER_LENGTH or not user.isprintable():
        message = f"{user!r:.80} cannot be the name of a user"
        raise ConfigError(message, hint=f"use up to {_MAX_USER_LENGTH} printable characters")
    if expires is not None and expires <= now:
        message = "the expiry time is in the past"
        raise ConfigError(message, hint="give a future time, such as 30d")


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode("ascii")).hexdigest()


def _build_live_condition(now: datetime) -> ColumnElement[bool]:
    return and_(api_keys.c.revoked.is_(None), or_(api_keys.c.expires.is_(None), api_keys.c.expires > now))


def _add_key(connection: Connection, key: ApiKey, *, same_holder: bool) -> str:
    """Add a key and return "". Return "holds" if a valid key has this name, or "held" if an earlier one had
    it and `same_holder` is false.
    """
    named = select(api_keys.c.key_id).where(api_keys.c.name == key.name)
    if connection.execute(named.where(_build_live_condition(key.created))).first() is not None:
        return "holds"
    if not same_holder and connection.execute(named).first() is not None:
        return "held"
    row = {
        "key_id": key.key_id,
        "name": key.name,
        "digest": key.digest,
        "reach": _build_access(key),
        "created": key.created,
        "expires": key.expires,
    }
    connection.execute(insert(api_keys), row)
    return ""


def _build_access(key: ApiKey) -> str:
    return to_json(_KeyAccess(**{name: getattr(key, name) for name in _ACCESS_FIELDS})).decode()


def _update_last_used(connection: Connection, key_id: str, at: datetime) -> None:
    older = or_(api_keys.c.last_used.is_(None), api_keys.c.last_used < at)
    connection.execute(update(api_keys).where(api_keys.c.key_id == key_id, older).values(last_used=at))


def _build_key(values: dict[str, Any]) -> ApiKey:
    access = from_json(_KeyAccess, values.pop("reach"))
    return ApiKey(**values, **{name: getattr(access, name) for name in _ACCESS_FIELDS})


class CredentialRows(StorePart):
    """The table of tokens: one value per name, stored as it is."""

    async def get(self, name: str) -> bytes | None:
        return await self._read_value(select(tokens.c.data).where(tokens.c.server == name))

    async def list_key_ids(self) -> dict[str, bytes]:
        """Return the id of the key that encrypted each token, by server."""
        rows = await self._read_rows(select(tokens))
        return {row.server: get_key_id(row.data) for row in rows if row.data.startswith(_SEALED)}

    async def list_sign_ins(self) -> dict[str, list[str]]:
        """Return the servers that each user has signed in to: values named `user/SERVER/USER`."""
        named = select(tokens.c.server).where(tokens.c.server.like("user/%/%")).order_by(tokens.c.server)
        found: dict[str, list[str]] = {}
        for row in await self._read_rows(named):
            _, server, user = row.server.split("/", 2)
            found.setdefault(user, []).append(server)
        return found

    async def put(self, name: str, data: bytes) -> None:
        """Store the value, replacing an older one."""
        await self._execute(self._upsert(tokens), _build_token_row(name, data))

    async def put_if_absent(self, name: str, data: bytes) -> bytes:
        """Store `data` if there is no value yet. Return the stored value."""
        return await self._write(_put_token_if_absent, name, data)

    async def remove(self, name: str) -> bool:
        """Delete the value. Return False if there was none."""
        return await self._execute(delete(tokens).where(tokens.c.server == name)) > 0

    async def reseal(self, old: bytes, new: bytes) -> int:
        """Encrypt all tokens of one secret with another, in one transaction. Return how many."""
        return await self._write(_reseal_all, TokenCipher(old), TokenCipher(new))


def _build_token_row(name: str, data: bytes) -> dict[str, Any]:
    return {"server": name, "data": data, "saved": utc_now()}


def _put_token_if_absent(connection: Connection, name: str, data: bytes) -> bytes:
    connection.execute(insert_ignoring(connection, tokens), _build_token_row(name, data))
    return connection.execute(select(tokens.c.data).where(tokens.c.server == name)).scalar_one()


def _reseal_all(connection: Connection, old: TokenCipher, new: TokenCipher) -> int:
    count = 0
    for row in connection.execute(select(tokens)).all():
        if row.server in (SECRET_NAME, SECRET_DIGEST_NAME):
            continue
        # A token of a third secret stays: its secret may be found again.
        plain = old.open(row.server, row.data) if row.data.startswith(_SEALED) else row.data
        if plain is not None:
            change = update(tokens).where(tokens.c.server == row.server)
            connection.execute(change.values(data=new.seal(row.server, plain)))
            count += 1
    return count


_SEALED: Final = b"fpt1"  # format version; tokens of older versions are JSON
_KEY_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12


def get_key_id(sealed: bytes) -> bytes:
    """Return the id of the key that encrypted this token."""
    return sealed[len(_SEALED) :][:_KEY_ID_BYTES]


class TokenCipher:
    """Encrypts tokens with a key derived from a secret (AES-256-GCM). A token is bound to its server."""

    def __init__(self, secret: bytes) -> None:
        # The library takes long to load, and most commands read no token.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"fingerpost/tokens/1").derive(secret)
        self._cipher = AESGCM(key)
        self.key_id = hashlib.sha256(b"fingerpost/token-key-id/1\n" + key).digest()[:_KEY_ID_BYTES]

    def seal(self, server: str, data: bytes) -> bytes:
        """Return the token encrypted."""
        nonce = os.urandom(_NONCE_BYTES)
        return _SEALED + self.key_id + nonce + self._cipher.encrypt(nonce, data, _encode_name(server))

    def open(self, server: str, sealed: bytes) -> bytes | None:
        """Return the decrypted token, or None if another key, or one for another server, encrypted it."""
        from cryptography.exceptions import InvalidTag

        body = sealed[len(_SEALED) + _KEY_ID_BYTES :]
        try:
            return self._cipher.decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], _encode_name(server))
        except (InvalidTag, ValueError):  # ValueError: too short
            return None


def _encode_name(server: str) -> bytes:
    return server.encode("utf-8", "surrogatepass")


class TokenStore:
    """Sign-in tokens by server, encrypted with the installation's secret."""

    def __init__(self, rows: CredentialRows, secret: InstallationSecret) -> None:
        self._rows = rows
        self._secret = secret

    async def get(self, server: str) -> bytes | None:
        """Return the token. Raises `ConfigError` if another secret encrypted it."""
        stored = await self._rows.get(server)
        if stored is None:
            return None
        if not stored.startswith(_SEALED):  # stored by a version that did not encrypt
            await self.put(server, stored)
            return stored
        token = TokenCipher(await self._secret.load()).open(server, stored)
        if token is None:
            message = f"the sign-in to {server} cannot be decrypted: it was stored with another secret"
            hint = (
                f"restore {self._secret.label}, or run `fingerpost store rekey --old-secret-file FILE` with "
                f"a copy of the former secret; or sign in again: `fingerpost servers login {server}`"
            )
            raise ConfigError(message, hint=hint)
        return token

    async def list_sign_ins(self) -> dict[str, list[str]]:
        """Return the servers that each user has signed in to with the own account."""
        return await self._rows.list_sign_ins()

    async def has(self, server: str) -> bool:
        """Return whether a token is stored, without decrypting it."""
        return await self._rows.get(server) is not None

    async def put(self, server: str, data: bytes) -> None:
        """Store the token, replacing an older one."""
        await self._rows.put(server, TokenCipher(await self._secret.load()).seal(server, data))

    async def remove(self, server: str) -> bool:
        """Delete the token. Return False if there was none."""
        return await self._rows.remove(server)


class InstallationSecret:
    """The secret that encrypts sign-in tokens and approval states.

    It is outside of the database, so that a copy of it decrypts nothing: in `store.secret`, in the file that
    `store.secret_file` names, or in a file beside an SQLite database. Hosts that share a PostgreSQL database
    without these settings share the secret in it.
    """

    def __init__(self, rows: CredentialRows, location: StoreLocation) -> None:
        self._rows = rows
        self._location = location
        self._loaded: bytes | None = None

    @property
    def label(self) -> str:
        """Names the place of the secret in messages."""
        if self._location.secret_value is not None:
            return "store.secret"
        return "the secret in the database" if self._location.secret is None else str(self._location.secret)

    async def load(self) -> bytes:
        """Return the secret, and create it if there is none. The first process wins.

        If it belongs in a file, a secret in the database is not used again, because deleted rows can be
        recovered. Raises `ConfigError` if `store.secret_file` cannot be used.
        """
        if self._loaded is None:
            self._loaded = await self._load()
        return self._loaded

    async def _load(self) -> bytes:
        file = self._location.secret
        if self._location.secret_value is not None:
            secret = self._location.secret_value
        elif file is None:
            if await self._rows.get(SECRET_DIGEST_NAME) is not None:
                logger.warning("%s", _NOT_SET)
            return await self._rows.put_if_absent(SECRET_NAME, os.urandom(_SECRET_BYTES))
        elif self._location.secret_file is None:
            await self._finish_replacement(file)
            secret = await anyio.to_thread.run_sync(_read_or_create_secret, file)
        else:
            await self._finish_replacement(file)
            secret = await self._load_shared_file(file)
        former = await self._rows.get(SECRET_NAME)
        if former is not None:
            await self._rows.reseal(former, secret)
            await self._rows.remove(SECRET_NAME)
        return secret

    async def replace(self) -> int:
        """Replace the secret in the file by a new one and encrypt all tokens with it. Return how many.

        Approval states of the former secret are not accepted any more. Raises `ConfigError` if the secret is
        not in a file.
        """
        file = self._location.secret
        if file is None or self._location.secret_value is not None:
            message = f"only a secret in a file can be replaced; this one is {self.label}"
            hint = (
                "set the new secret (store.secret or store.secret_file), write the former one to a file, and "
                "run `fingerpost store rekey --old-secret-file FILE`"
            )
            raise ConfigError(message, hint=hint)
        old, new = await self.load(), os.urandom(_SECRET_BYTES)
        # Should this process end here, the next one finds the tokens' secret in the draft.
        await anyio.to_thread.run_sync(_write_draft, file, new)
        count = await self._rows.reseal(old, new)
        await self._finish_replacement(file)
        if self._location.secret_file is not None:
            await self._rows.put(SECRET_DIGEST_NAME, _hash_installation_secret(new))
        self._loaded = new
        return count

    async def adopt(self, file: Path) -> int:
        """Encrypt the tokens of the former secret in `file` with the present one. Return how many."""
        former = await anyio.to_thread.run_sync(_read_shared_file, file)
        if former is None:
            raise ConfigError(f"{file} does not exist", hint="name a file with the former secret")
        return await self._rows.reseal(former, await self.load())

    async def list_unreadable(self) -> list[str]:
        """Return the servers whose tokens another secret encrypted."""
        key_ids = await self._rows.list_key_ids()
        if not key_ids:
            return []
        key_id = TokenCipher(await self.load()).key_id
        return sorted(server for server, found in key_ids.items() if found != key_id)

    async def _finish_replacement(self, file: Path) -> None:
        """Put the draft in its place if tokens were encrypted with it."""
        draft = _get_draft(file)
        secret = await anyio.to_thread.run_sync(_read_draft, draft)
        if secret is not None:
            replaced = await self._rows.list_key_ids()
            if not replaced or TokenCipher(secret).key_id in replaced.values():
                await anyio.to_thread.run_sync(os.replace, draft, file)

    async def find_fault(self) -> tuple[str, str] | None:
        """Return what is wrong with the place of the secret and how to fix it. Creates nothing."""
        if self._location.secret_value is not None:
            return None
        digest = await self._rows.get(SECRET_DIGEST_NAME)
        file = self._location.secret_file
        if file is not None:
            try:
                secret = await anyio.to_thread.run_sync(_read_shared_file, file)
            except ConfigError as error:
                return str(error), error.hint or ""
            differs = None not in (secret, digest) and _hash_installation_secret(secret or b"") != digest
            return _describe_difference(file) if differs else None
        if self._location.secret is not None:
            return None
        if digest is not None:
            return _UNSET
        return None if await self._rows.get(SECRET_NAME) is None else _IN_DATABASE

    async def _load_shared_file(self, file: Path) -> bytes:
        """Return the secret in the file. Creates the file only if no host has used one with this store."""
        digest = await self._rows.get(SECRET_DIGEST_NAME)
        secret = await anyio.to_thread.run_sync(_read_shared_file, file)
        if secret is None and digest is not None:
            message = f"store.secret_file {file} is missing, and this store was used with one before"
            raise ConfigError(
                message,
                hint="copy the file from a host that has it, with mode 0600. If it is lost: "
                f"head -c 32 /dev/urandom > {file} && chmod 600 {file}",
            )
        if secret is None:
            try:
                secret = await anyio.to_thread.run_sync(_read_or_create_secret, file)
            except OSError as error:
                raise _explain_unusable(file, error) from None
        own_digest = _hash_installation_secret(secret)
        if await self._rows.put_if_absent(SECRET_DIGEST_NAME, own_digest) != own_digest:
            logger.warning("%s", _describe_difference(file)[0])
            await self._rows.put(SECRET_DIGEST_NAME, own_digest)
        return secret


_SET_IT: Final = "set store.secret_file to a file with mode 0600 that is the same on every host"
_IN_DATABASE: Final = (
    "the database contains the secret that encrypts sign-in tokens and approval states",
    _SET_IT,
)
_NOT_SET: Final = (
    "store.secret_file is not set, but other processes on this store keep their secret in a file. They do "
    "not accept tokens and approval states of this one, which puts its own secret into the database"
)
_UNSET: Final = (_NOT_SET, _SET_IT)


def _describe_difference(file: Path) -> tuple[str, str]:
    what = (
        f"the secret in {file} differs from the one that was last used with this store: hosts with different "
        "secrets do not accept each other's approvals"
    )
    return what, "copy the same file to every host and restart them"


def _hash_installation_secret(secret: bytes) -> bytes:
    return hashlib.sha256(b"fingerpost/installation-secret/1\n" + secret).hexdigest().encode()


def _read_shared_file(file: Path) -> bytes | None:
    """Return the secret in a file that a person named, or None if there is none."""
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            secret = opened.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _explain_unusable(file, error) from None
    # Orchestrators give a program a file of root that its group can read.
    forbidden = stat.S_IRWXO | (stat.S_IRWXG if status.st_uid else stat.S_IWGRP | stat.S_IXGRP)
    if os.name == "posix" and status.st_mode & forbidden:
        message = f"store.secret_file {file} can be read by others"
        raise ConfigError(message, hint=f"make a new secret, and: chmod 600 {file}")
    if len(secret) < _SECRET_BYTES:
        message = (
            f"store.secret_file {file} has {len(secret)} bytes; a secret has at least {_SECRET_BYTES} bytes"
        )
        raise ConfigError(message, hint=f"head -c 32 /dev/urandom > {file}")
    return secret


def _explain_unusable(file: Path, error: OSError) -> ConfigError:
    message = f"store.secret_file {file} cannot be used: {error.strerror}"
    return ConfigError(message, hint="name a file that the account of Fingerpost can read, or can create")


def _read_or_create_secret(file: Path) -> bytes:
    """Return the secret in this file. Create it, readable by its owner only, if missing. Raises `OSError`."""
    if file.exists():
        make_private(file)
        return file.read_bytes()
    made = os.urandom(_SECRET_BYTES)
    draft = file.with_name(f"{file.name}.{os.getpid()}.{made[:4].hex()}")
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as writing:
            writing.write(made)
            writing.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)  # atomic, and only the first process succeeds
    finally:
        draft.unlink()
    return file.read_bytes()


def _get_draft(file: Path) -> Path:
    return file.with_name(f"{file.name}.next")


def _write_draft(file: Path, secret: bytes) -> None:
    draft = _get_draft(file)
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as writing:
        writing.write(secret)
        writing.flush()
        os.fsync(descriptor)


def _read_draft(draft: Path) -> bytes | None:
    return draft.read_bytes() if draft.is_file() else None
