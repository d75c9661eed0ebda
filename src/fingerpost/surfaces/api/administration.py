"""Administration: users and their sign-ins, keys, quotas, and the settings in effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Annotated, Final, Literal

import anyio.to_thread
from pydantic import Field

from fingerpost.errors import ConfigError
from fingerpost.events import AccessChanged, KeyChanged
from fingerpost.frozen import copy_fields, frozen
from fingerpost.records import (
    ALL_RIGHTS,
    LOCAL_NAME,
    QUOTA_LIMITS,
    AccessRole,
    Effect,
    Json,
    Quota,
    QuotaSubject,
    Right,
    Scope,
    User,
    utc_now,
)
from fingerpost.records.access import find_quota
from fingerpost.redaction import scrub_json
from fingerpost.router import Router
from fingerpost.settings import Loaded, Settings
from fingerpost.settings.problems import ValueOrigin
from fingerpost.settings.reference import build_rows, list_sections
from fingerpost.store import Store
from fingerpost.store.callers import UsedLimit
from fingerpost.store.credentials import ApiKey
from fingerpost.surfaces.api.operation import (
    ApiProblem,
    ApiRequest,
    ApiResponse,
    OperationGroup,
    declare_operation,
)
from fingerpost.surfaces.api.sign_ins import record_sign_in

_KEY_PATH: Final = "/api/keys/{key_id}"
_USER_PATH: Final = "/api/users/{name}"
_QUOTA_PATH: Final = "/api/quotas/{quota_id}"
_MAX_PATTERNS: Final = 100

UserName = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Patterns = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=300)], ...], Field(max_length=_MAX_PATTERNS)
]
Roles = Annotated[tuple[Annotated[AccessRole, Field(strict=False)], ...], Field(max_length=len(AccessRole))]
Rights = Annotated[tuple[Annotated[Right, Field(strict=False)], ...], Field(max_length=len(ALL_RIGHTS))]
Effects = Annotated[tuple[Annotated[Effect, Field(strict=False)], ...], Field(max_length=len(Effect))]
Expiry = Annotated[datetime | None, Field(strict=False, description="With a time zone; null: never")]
Limit = Annotated[int | None, Field(ge=1, le=10**12)]


@frozen
class KeyView:
    """A key. Its text is shown only when it is made."""

    key_id: str
    name: str
    user: str
    roles: tuple[AccessRole, ...]
    rights: tuple[Right, ...]  # beside those of the roles
    scope: Scope
    profiles: tuple[str, ...]
    created: datetime
    expires: datetime | None
    last_used: datetime | None
    revoked: datetime | None
    valid: bool


@frozen
class KeyPage:
    """All keys, also revoked ones, the newest first."""

    items: tuple[KeyView, ...]


@frozen
class NewKey:
    """A new key, and its text, which is not shown again."""

    item: KeyView
    key: str


@frozen
class NewKeyBody:
    """A key to be made. Without roles and rights its holder has the right `use`."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    user: UserName = ""
    roles: Roles = ()
    rights: Rights = ()
    servers: Patterns = ()
    tools: Patterns = ()
    effects: Effects = ()
    profiles: Patterns = ()
    expires: Expiry = None
    same_holder: bool = False


@frozen
class KeyBody:
    """What can be changed of a key."""

    roles: Roles
    rights: Rights = ()
    user: UserName = ""
    expires: Expiry = None


@frozen
class UserView:
    """A user: stored, the owner of a valid key, or signed in to a server."""

    name: str
    roles: tuple[AccessRole, ...]
    disabled: bool
    stored: bool
    keys: tuple[str, ...]  # names of valid keys
    sign_ins: tuple[str, ...]  # servers where the user has signed in with the own account


async def list_user_views(store: Store) -> tuple[UserView, ...]:
    """Return all known users by name."""
    stored = {user.name: user for user in await store.users.list_all()}
    now = utc_now()
    keys: dict[str, list[str]] = {}
    for key in await store.keys.list_all():
        if key.is_valid(now):
            keys.setdefault(key.user or key.name, []).append(key.name)
    sign_ins = await store.tokens.list_sign_ins()
    return tuple(
        UserView(
            name=name,
            roles=stored[name].roles if name in stored else (),
            disabled=name in stored and stored[name].disabled,
            stored=name in stored,
            keys=tuple(keys.get(name, ())),
            sign_ins=tuple(sign_ins.get(name, ())),
        )
        for name in sorted({*stored, *keys, *sign_ins} - {LOCAL_NAME})
    )


@frozen
class UserPage:
    """All known users by name."""

    items: tuple[UserView, ...]


@frozen
class UserBody:
    """Roles for tokens of the user, and whether all of its keys and tokens are refused."""

    roles: Roles = ()
    disabled: bool = False


@frozen
class UserSignIns:
    """The servers where a user has signed in with the own account."""

    servers: tuple[str, ...]


@frozen
class QuotaPage:
    """All quotas in the order in which they are tried, and the present use."""

    items: tuple[Quota, ...]
    use: tuple[UsedLimit, ...]


@frozen
class OwnLimits:
    """The limits of the caller as user and as key, and what is used of them now."""

    items: tuple[UsedLimit, ...]


@frozen
class QuotaBody:
    """Limits for users, keys or profiles with a matching name; null: no limit."""

    of: QuotaSubject = "user"
    match: Annotated[str, Field(min_length=1, max_length=200)] = "*"
    requests_per_minute: Limit = None
    calls_per_minute: Limit = None
    running: Limit = None
    tokens_per_day: Limit = None
    cost_per_day: Annotated[float | None, Field(gt=0, le=1e12)] = None


class AdministrationOperations(OperationGroup):
    """The operations about keys, users with their sign-ins, and quotas."""

    tag = "administration"

    def __init__(self, router: Router) -> None:
        super().__init__(router)
        self._keys = router.store.keys

    @declare_operation("GET", "/api/keys", right=Right.ADMINISTER)
    async def list_keys(self, request: ApiRequest) -> KeyPage:
        """All keys, without their texts."""
        return KeyPage(items=tuple(map(_build_view, reversed(await self._keys.list_all()))))

    @declare_operation("POST", "/api/keys", right=Right.ADMINISTER, status=201)
    async def add_key(self, request: ApiRequest, body: NewKeyBody) -> NewKey:
        """Make a key; the answer is the only place where it is shown."""
        _check_expiry(body.expires)
        made, text = await self._keys.add(
            body.name,
            scope=Scope(servers=body.servers, tools=body.tools, effects=body.effects),
            profiles=body.profiles,
            rights=body.rights or (() if body.roles else (Right.USE,)),
            roles=body.roles,
            user=body.user,
            expires=body.expires,
            same_holder=body.same_holder,
        )
        await self._record(made, "made", request)
        return NewKey(item=_build_view(made), key=text)

    @declare_operation("PUT", _KEY_PATH, right=Right.ADMINISTER, problems=(404,))
    async def change_key(self, request: ApiRequest, body: KeyBody, key_id: str) -> KeyView:
        """Change the roles, rights, owner and expiry of a key."""
        _check_expiry(body.expires)
        key = await self._find(key_id)
        changed = replace(key, roles=body.roles, rights=body.rights, user=body.user, expires=body.expires)
        if not await self._keys.change(changed):
            raise _build_unknown("key", key_id)
        await self._record(changed, "changed", request)
        return _build_view(changed)

    @declare_operation("DELETE", _KEY_PATH, right=Right.ADMINISTER, status=204, problems=(404,))
    async def revoke_key(self, request: ApiRequest, key_id: str) -> ApiResponse:
        """Revoke a key: it is refused within seconds."""
        key = await self._find(key_id)
        if not await self._keys.revoke(key.key_id):
            raise _build_unknown("key", key_id)
        await self._record(key, "revoked", request)
        return ApiResponse(status=204)

    async def _find(self, key_id: str) -> ApiKey:
        key = await self._keys.get(key_id)
        if key is None or key.revoked is not None:
            raise _build_unknown("key", key_id)
        return key

    async def _record(
        self, key: ApiKey, change: Literal["made", "changed", "revoked"], request: ApiRequest
    ) -> None:
        event = KeyChanged(key_id=key.key_id, name=key.name, change=change, by=request.principal.name)
        await self._router.store.journal.append(event)

    @declare_operation("GET", "/api/users", right=Right.ADMINISTER)
    async def list_users(self, request: ApiRequest) -> UserPage:
        """Stored users, owners of valid keys, and users who have signed in to a server."""
        return UserPage(items=await list_user_views(self._router.store))

    @declare_operation("PUT", _USER_PATH, right=Right.ADMINISTER)
    async def change_user(self, request: ApiRequest, body: UserBody, name: str) -> User:
        """Give a user roles, or disable it: its keys and tokens are refused within seconds."""
        if body.disabled and name == request.principal.user_name:
            raise ApiProblem(422, "This is you", "You cannot disable yourself.")
        user = User(name=name, roles=body.roles, disabled=body.disabled)
        await self._router.store.users.put(user)
        await self._apply("user", name, "changed", request)
        return user

    @declare_operation("DELETE", _USER_PATH, right=Right.ADMINISTER, status=204, problems=(404,))
    async def remove_user(self, request: ApiRequest, name: str) -> ApiResponse:
        """Forget the roles of a user, and that it was disabled; its keys stay as they are."""
        if not await self._router.store.users.remove(name):
            raise _build_unknown("user", name)
        await self._apply("user", name, "removed", request)
        return ApiResponse(status=204)

    @declare_operation("GET", f"{_USER_PATH}/sign-ins", right=Right.ADMINISTER)
    async def list_user_sign_ins(self, request: ApiRequest, name: str) -> UserSignIns:
        """Servers where a user has signed in with the own account."""
        found = await self._router.store.tokens.list_sign_ins()
        return UserSignIns(servers=tuple(found.get(name, ())))

    @declare_operation(
        "DELETE", f"{_USER_PATH}/sign-ins/{{server}}", right=Right.ADMINISTER, status=204, problems=(404,)
    )
    async def end_user_sign_in(self, request: ApiRequest, name: str, server: str) -> ApiResponse:
        """Delete and revoke a user's sign-in to a server."""
        if await self._router.servers.sign_out(server, user=name) == "not signed in":
            raise _build_unknown("sign-in", server)
        await record_sign_in(self._router, server, name, "removed", by=request.principal.name)
        return ApiResponse(status=204)

    @declare_operation("GET", "/api/quotas", right=Right.WATCH, covers_all=True)
    async def list_quotas(self, request: ApiRequest) -> QuotaPage:
        """All quotas and their present use."""
        quotas = self._router.quotas.all
        return QuotaPage(items=quotas, use=await self._router.store.quotas.measure_use(quotas))

    @declare_operation("GET", "/api/me/quotas", right=Right.USE)
    async def list_own_limits(self, request: ApiRequest) -> OwnLimits:
        """The caller's own limits and their present use."""
        quotas = self._router.quotas.all
        names: tuple[tuple[QuotaSubject, str], ...] = (
            ("user", request.principal.user_name),
            ("key", request.principal.name),
        )
        use = await self._router.store.quotas.measure_use(quotas)
        used = {(one.of, one.name, one.limit): one.used for one in use}
        return OwnLimits(
            items=tuple(
                UsedLimit(of=of, name=name, limit=limit, used=used.get((of, name, limit), 0.0), most=most)
                for of, name in names
                if (quota := find_quota(quotas, of, name)) is not None
                for limit in QUOTA_LIMITS
                if (most := getattr(quota, limit)) is not None
            )
        )

    @declare_operation("POST", "/api/quotas", right=Right.ADMINISTER, status=201)
    async def add_quota(self, request: ApiRequest, body: QuotaBody) -> Quota:
        """Add a quota, before all others."""
        return await self._put(request, body, "")

    @declare_operation("PUT", _QUOTA_PATH, right=Right.ADMINISTER, problems=(404,))
    async def change_quota(self, request: ApiRequest, body: QuotaBody, quota_id: str) -> Quota:
        """Change a quota. Those of the settings are changed in their file."""
        if all(one.quota_id != quota_id for one in await self._router.store.quotas.list_all()):
            raise _build_unknown("quota", quota_id)
        return await self._put(request, body, quota_id)

    @declare_operation("DELETE", _QUOTA_PATH, right=Right.ADMINISTER, status=204, problems=(404,))
    async def remove_quota(self, request: ApiRequest, quota_id: str) -> ApiResponse:
        """Remove a quota. Those of the settings are removed in their file."""
        if not await self._router.store.quotas.remove(quota_id):
            raise _build_unknown("quota", quota_id)
        await self._apply("quota", quota_id, "removed", request)
        return ApiResponse(status=204)

    async def _put(self, request: ApiRequest, body: QuotaBody, quota_id: str) -> Quota:
        quota = copy_fields(Quota, body, quota_id=quota_id)
        if all(getattr(quota, limit) is None for limit in QUOTA_LIMITS):
            raise ApiProblem(422, "No limit", f"Set at least one of {', '.join(QUOTA_LIMITS)}.")
        stored = await self._router.store.quotas.put(quota)
        await self._apply("quota", stored.quota_id, "changed", request)
        return stored

    async def _apply(
        self,
        what: Literal["user", "quota"],
        name: str,
        change: Literal["changed", "removed"],
        request: ApiRequest,
    ) -> None:
        await self._router.refresh_access()
        event = AccessChanged(what=what, name=name, change=change, by=request.principal.name)
        await self._router.store.journal.append(event)


def _build_view(key: ApiKey) -> KeyView:
    return copy_fields(KeyView, key, user=key.user or key.name, valid=key.is_valid(utc_now()))


def _check_expiry(expires: datetime | None) -> None:
    if expires is not None and expires.tzinfo is None:
        raise ConfigError("the expiry time has no time zone", hint="Write it such as 2027-01-31T00:00:00Z.")


def _build_unknown(what: str, name: str) -> ApiProblem:
    return ApiProblem(
        404, f"There is no such {what}", f"There is no {what} {name[:80]!r} that can be changed."
    )


# Set by the program that opened the router.
PROGRAM_ORIGIN: Final = ValueOrigin(kind="argument", name="settings")


@frozen
class SettingsQuery:
    """Filter of settings."""

    section: Annotated[str | None, Field(max_length=100, description="Such as `smart_routing`")] = None
    changed: Annotated[bool, Field(description="Only what is not a default")] = False


@frozen
class SettingLine:
    """One setting. `kind` is default, file, environment or argument; `origin` names the file, variable or
    argument.
    """

    path: str
    value: Json
    origin: str
    kind: str


@frozen
class SettingsView:
    """The settings, in the format of `fingerpost config show --json`."""

    settings: tuple[SettingLine, ...]
    sections: tuple[str, ...]
    files: tuple[str, ...]
    warnings: tuple[str, ...]


class SettingsOperations(OperationGroup):
    """The operation about settings. `loaded` is where they were read from, if known."""

    tag = "settings"

    def __init__(self, router: Router, loaded: Loaded | None) -> None:
        self._settings = router.settings
        self._loaded = loaded

    @cached_property
    def _lines(self) -> tuple[SettingLine, ...]:
        return tuple(
            SettingLine(
                path=row.path,
                value=scrub_json(row.value),  # pyright: ignore[reportArgumentType] - it is JSON
                origin=str(row.origin),
                kind=row.origin.kind,
            )
            for row in build_rows(self._loaded or _build_loaded(self._settings))
        )

    @declare_operation("GET", "/api/settings", right=Right.WATCH, covers_all=True, problems=(404,))
    async def get_settings(self, request: ApiRequest, query: SettingsQuery) -> SettingsView:
        """The effective settings and where each comes from; secrets are masked."""
        if query.section is not None and query.section not in list_sections():
            detail = f"The sections are {', '.join(list_sections())}."
            raise ApiProblem(404, "There is no such section", detail)
        lines = await anyio.to_thread.run_sync(lambda: self._lines)
        loaded = self._loaded
        wanted = tuple(
            line
            for line in lines
            if query.section in (None, line.path.split(".")[0].split("[")[0])
            and not (query.changed and line.kind == "default")
        )
        return SettingsView(
            settings=wanted,
            sections=list_sections(),
            files=loaded.files if loaded is not None else (),
            warnings=tuple(map(str, loaded.warnings)) if loaded is not None else (),
        )


def _build_loaded(settings: Settings) -> Loaded:
    """Return the origins of settings made by a program: values that differ from the defaults are its own."""
    defaults = _collect_values(Loaded(settings=Settings(), origins={}))
    present = _collect_values(Loaded(settings=settings, origins={}))
    origins = {path: PROGRAM_ORIGIN for path, value in present.items() if defaults.get(path, ...) != value}
    return Loaded(settings=settings, origins=origins)


def _collect_values(loaded: Loaded) -> Mapping[str, object]:
    return {row.path: row.value for row in build_rows(loaded)}
