"""`fingerpost keys`, `users` and `quotas`: API keys of the gateway, its users, and limits of its callers."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from fingerpost.events import AccessChanged, KeyChanged
from fingerpost.records import (
    QUOTA_LIMITS,
    AccessRole,
    Effect,
    Quota,
    QuotaSubject,
    Right,
    Scope,
    User,
    utc_now,
)
from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.common import run_on_store, use_store
from fingerpost.surfaces.cli.options import CommonOptions
from fingerpost.surfaces.cli.screen import clean_text, print_json, print_note, print_table

if TYPE_CHECKING:
    from fingerpost.settings import Settings
    from fingerpost.store import ApiKey, Store


def add_key(
    *,
    name: str,
    only_servers: tuple[str, ...],
    tools: tuple[str, ...],
    effects: tuple[str, ...],
    profiles: tuple[str, ...],
    rights: tuple[str, ...],
    roles: tuple[str, ...],
    user: str,
    expires: str | None,
    same_holder: bool,
    common: CommonOptions,
) -> int:
    """Create a key for NAME and print it. It cannot be shown again."""
    end = _parse_expiry(expires)
    held = tuple(AccessRole(role) for role in dict.fromkeys(roles))
    may = tuple(Right(right) for right in dict.fromkeys(rights)) or (() if held else (Right.USE,))
    scope = Scope(servers=only_servers, tools=tools, effects=tuple(Effect(effect) for effect in effects))

    async def work(store: Store, settings: Settings) -> tuple[ApiKey, str]:
        _warn_unknown(settings, only_servers, profiles)
        made, key = await store.keys.add(
            name,
            scope=scope,
            profiles=profiles,
            rights=may,
            roles=held,
            user=user,
            expires=end,
            same_holder=same_holder,
        )
        await store.journal.append(KeyChanged(key_id=made.key_id, name=made.name, change="made"))
        return made, key

    made, key = run_on_store(common, work)
    if common.as_json:
        print_json({**_convert_key(made, utc_now()), "key": key})
        return 0
    until = f" until {made.expires:%Y-%m-%d %H:%M} UTC" if made.expires else ""
    shown = f"{made.name} opens {_format_scope(made)}{until}. Save the key; it is not shown again:"
    click.echo(shown, err=True)
    click.echo(key)
    click.echo(f"Send it as `Authorization: Bearer {key[:6]}…` or `X-API-Key: {key[:6]}…`.", err=True)
    return 0


@use_store
async def revoke_key(store: Store, _: Settings, *, name: str, common: CommonOptions) -> int:
    """Revoke the key with this name or id. A running gateway rejects it within seconds."""
    known = [key for key in await store.keys.list_all() if name in (key.name, key.key_id)]
    revoked = await store.keys.revoke(name)
    for key in known if revoked else ():
        await store.journal.append(KeyChanged(key_id=key.key_id, name=key.name, change="revoked"))
    if common.as_json:
        print_json({"name": name, "revoked": revoked})
    elif revoked:
        click.echo(f"{name} is revoked.")
    else:
        click.echo(f"There is no key {name}. `fingerpost keys` lists them.", err=True)
    return 0 if revoked else 1


@use_store
async def list_keys(store: Store, _: Settings, *, common: CommonOptions) -> int:
    """List all keys."""
    known = await store.keys.list_all()
    now = utc_now()
    if common.as_json:
        print_json([_convert_key(key, now) for key in known])
        return 0
    if not known:
        click.echo("There are no keys. Make one with `fingerpost keys add NAME`.")
        return 0
    print_table(
        None,
        ("name", "user", "opens", "may", "state", "made", "last used", "id"),
        (
            (
                key.name,
                key.user or key.name,
                Text(_format_scope(key)),
                ", ".join((*key.roles, *key.rights)),
                _format_state(key, now),
                f"{key.created:%Y-%m-%d}",
                f"{key.last_used:%Y-%m-%d %H}h" if key.last_used else "never",
                key.key_id,
            )
            for key in sorted(known, key=lambda key: not key.is_valid(now))
        ),
    )
    return 0


def _convert_key(key: ApiKey, now: datetime) -> dict[str, Any]:
    shown = {name: value for name, value in to_plain(key).items() if name != "digest"}
    return {**shown, "state": _format_state(key, now)}


def _format_state(key: ApiKey, now: datetime) -> str:
    if key.revoked is not None:
        return f"revoked {key.revoked:%Y-%m-%d}"
    if key.expires is None:
        return "good"
    return (
        f"good until {key.expires:%Y-%m-%d %H:%M}" if key.is_valid(now) else f"expired {key.expires:%Y-%m-%d}"
    )


def _format_scope(key: ApiKey) -> str:
    bounds = (
        ("servers", key.scope.servers),
        ("tools", key.scope.tools),
        ("effects", tuple(effect.value for effect in key.scope.effects)),
        ("profiles", key.profiles),
    )
    parts = [f"{kind} {', '.join(names)}" for kind, names in bounds if names]
    return clean_text("; ".join(parts)) or "everything"


def _parse_expiry(text: str | None) -> datetime | None:
    """Parse `30d` from now, or the end of a date in UTC. Raises `BadParameter`."""
    if text is None:
        return None
    if match := re.fullmatch(r"(\d{1,5})\s*([mhdw])", text.strip()):
        unit = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}[match[2]]
        return utc_now() + timedelta(**{unit: int(match[1])})
    try:
        day = datetime.strptime(text.strip(), "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        message = f"{text!r} is neither a time such as 30d, 12h, 45m nor a date such as 2027-01-31"
        raise click.BadParameter(message, param_hint="--expires") from None
    return day + timedelta(days=1)


def _warn_unknown(settings: Settings, servers: tuple[str, ...], profiles: tuple[str, ...]) -> None:
    """Print a note for servers and profiles that are not configured."""
    for kind, names, known in (
        ("server", servers, settings.servers.keys()),
        ("profile", profiles, settings.profiles.keys()),
    ):
        for name in names:
            if not any(sign in name for sign in "*?[") and name not in known:
                print_note(f"there is no {kind} named {name} now")


@use_store
async def list_users(store: Store, _: Settings, *, common: CommonOptions) -> int:
    """List stored users, owners of keys, and users who have signed in to a server."""
    from fingerpost.surfaces.api.administration import list_user_views  # loads what commands do without

    known = await list_user_views(store)
    if common.as_json:
        print_json([to_plain(user) for user in known])
        return 0
    if not known:
        click.echo("There are no users. `fingerpost keys add NAME --user USER` makes one.")
        return 0
    print_table(
        None,
        ("name", "state", "roles of tokens", "keys", "signed in to"),
        (
            (
                Text(clean_text(user.name)),
                "disabled" if user.disabled else "enabled",
                ", ".join(user.roles) or "-",
                ", ".join(user.keys) or "-",
                Text(", ".join(user.sign_ins) or "-"),
            )
            for user in known
        ),
    )
    return 0


@use_store
async def set_user(
    store: Store, _: Settings, *, name: str, roles: tuple[str, ...], disabled: bool, common: CommonOptions
) -> int:
    """Store the roles of a user, and whether it is disabled."""
    user = User(name=name, roles=tuple(AccessRole(role) for role in dict.fromkeys(roles)), disabled=disabled)
    await store.users.put(user)
    await store.journal.append(AccessChanged(what="user", name=name, change="changed"))
    if common.as_json:
        print_json(to_plain(user))
    else:
        state = "disabled: its keys and tokens are refused" if disabled else "enabled"
        given = f", with the roles {', '.join(user.roles)} for its tokens" if user.roles else ""
        click.echo(f"{clean_text(name)} is {state}{given}. A running gateway applies it within seconds.")
    return 0


@use_store
async def remove_user(store: Store, _: Settings, *, name: str, common: CommonOptions) -> int:
    """Forget the roles of a user, and that it was disabled; its keys stay as they are."""
    removed = await store.users.remove(name)
    if removed:
        await store.journal.append(AccessChanged(what="user", name=name, change="removed"))
    if common.as_json:
        print_json({"name": name, "removed": removed})
    elif removed:
        click.echo(f"What was set for {clean_text(name)} is removed.")
    else:
        click.echo(f"Nothing is set for {clean_text(name)}. `fingerpost users` lists all users.", err=True)
    return 0 if removed else 1


def set_quota(
    *,
    of: QuotaSubject,
    match: str,
    requests_per_minute: int | None,
    calls_per_minute: int | None,
    running: int | None,
    tokens_per_day: int | None,
    cost_per_day: float | None,
    common: CommonOptions,
) -> int:
    """Store the quota for these names, in place of a stored one for the same names."""
    quota = Quota(
        of=of,
        match=match,
        requests_per_minute=requests_per_minute,
        calls_per_minute=calls_per_minute,
        running=running,
        tokens_per_day=tokens_per_day,
        cost_per_day=cost_per_day,
    )
    if all(getattr(quota, limit) is None for limit in QUOTA_LIMITS):
        raise click.UsageError("set at least one limit, such as --calls-per-minute 60")

    async def work(store: Store, _: Settings) -> Quota:
        same = (one.quota_id for one in await store.quotas.list_all() if (one.of, one.match) == (of, match))
        stored = await store.quotas.put(replace(quota, quota_id=next(same, "")))
        await store.journal.append(AccessChanged(what="quota", name=stored.quota_id, change="changed"))
        return stored

    stored = run_on_store(common, work)
    if common.as_json:
        print_json(to_plain(stored))
    else:
        click.echo(f"{of} {match}: {_format_limits(stored)}. A running gateway applies it within seconds.")
    return 0


@use_store
async def remove_quota(store: Store, _: Settings, *, quota_id: str, common: CommonOptions) -> int:
    """Remove the stored quota with this id."""
    removed = await store.quotas.remove(quota_id)
    if removed:
        await store.journal.append(AccessChanged(what="quota", name=quota_id, change="removed"))
    if common.as_json:
        print_json({"quota_id": quota_id, "removed": removed})
    elif removed:
        click.echo(f"{quota_id} is removed.")
    else:
        click.echo(f"There is no stored quota {quota_id}. `fingerpost quotas` lists them.", err=True)
    return 0 if removed else 1


@use_store
async def list_quotas(store: Store, settings: Settings, *, common: CommonOptions) -> int:
    """List the quotas and what is used of them now."""
    configured = (quota.to_record() for quota in settings.quotas)
    quotas = (*await store.quotas.list_all(), *configured)
    use = await store.quotas.measure_use(quotas)
    if common.as_json:
        print_json({"items": [to_plain(one) for one in quotas], "use": [to_plain(one) for one in use]})
        return 0
    if not quotas:
        click.echo("There are no quotas. Make one with `fingerpost quotas set --calls-per-minute 60`.")
        return 0
    print_table(
        None,
        ("of", "match", "limits", "id"),
        ((one.of, one.match, Text(_format_limits(one)), one.quota_id or "settings") for one in quotas),
    )
    if use:
        print_table(
            "Used now",
            ("of", "name", "limit", "used"),
            ((one.of, one.name, one.limit, f"{one.used:,.12g} of {one.most:,.12g}") for one in use),
        )
    return 0


def _format_limits(quota: Quota) -> str:
    limits = ((name, getattr(quota, name)) for name in QUOTA_LIMITS)
    return ", ".join(f"{name} {most:,.12g}" for name, most in limits if most is not None)
