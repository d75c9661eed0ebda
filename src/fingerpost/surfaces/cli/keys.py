"""`fingerpost keys`: create, list and revoke the API keys of the gateway."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from fingerpost.events import KeyChanged
from fingerpost.records import Effect, Right, Role, Scope, utc_now
from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.common import run_on_store
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
    expires: str | None,
    same_holder: bool,
    common: CommonOptions,
) -> int:
    """Create a key for NAME and print it. It cannot be shown again."""
    end = _parse_expiry(expires)
    held = tuple(Role(role) for role in dict.fromkeys(roles))
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


def revoke_key(*, name: str, common: CommonOptions) -> int:
    """Revoke the key with this name or id. A running gateway rejects it within seconds."""

    async def work(store: Store, _: Settings) -> bool:
        known = [key for key in await store.keys.list_all() if name in (key.name, key.key_id)]
        revoked = await store.keys.revoke(name)
        for key in known if revoked else ():
            await store.journal.append(KeyChanged(key_id=key.key_id, name=key.name, change="revoked"))
        return revoked

    revoked = run_on_store(common, work)
    if common.as_json:
        print_json({"name": name, "revoked": revoked})
    elif revoked:
        click.echo(f"{name} is revoked.")
    else:
        click.echo(f"There is no key {name}. `fingerpost keys` lists them.", err=True)
    return 0 if revoked else 1


def list_keys(*, common: CommonOptions) -> int:
    """List all keys."""

    async def work(store: Store, _: Settings) -> list[ApiKey]:
        return await store.keys.list_all()

    known = run_on_store(common, work)
    now = utc_now()
    if common.as_json:
        print_json([_convert_key(key, now) for key in known])
        return 0
    if not known:
        click.echo("There are no keys. Make one with `fingerpost keys add NAME`.")
        return 0
    print_table(
        None,
        ("name", "opens", "may", "state", "made", "last used", "id"),
        (
            (
                key.name,
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
