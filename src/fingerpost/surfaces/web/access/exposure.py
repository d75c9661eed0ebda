"""Whether the gateway may be started as it is set up: never open to a network without keys."""

from __future__ import annotations

from fingerpost.errors import ConfigError
from fingerpost.settings.model import GatewaySettings
from fingerpost.surfaces.web.access.addresses import get_host, is_loopback


def is_exposed(settings: GatewaySettings) -> bool:
    """Whether somebody who does not sit at this machine can reach the gateway."""
    public = get_host(settings.public_url) if settings.public_url else ""
    return not is_loopback(settings.host) or bool(public and not is_loopback(public))


def check_exposure(settings: GatewaySettings, *, has_keys: bool) -> str | None:
    """A note for the person who starts the gateway, if there is something to say.

    Raises `ConfigError` when anybody in the network could use every tool.
    """
    if not is_exposed(settings):
        return None
    if not has_keys and settings.sign_in is None:
        where = settings.host if not is_loopback(settings.host) else settings.public_url
        message = f"the gateway would be open to everybody who can reach {where}"
        raise ConfigError(
            message,
            hint="make a key with `fingerpost keys add NAME`, or set [gateway.sign_in], "
            "or listen at 127.0.0.1 only",
        )
    if settings.public_url is None:
        return (
            f"{settings.host} is served without encryption, so keys can be read on the way. Put a proxy with "
            "TLS in front, and say its address as gateway.public_url."
        )
    if not settings.public_url.startswith("https://"):
        return "gateway.public_url is not https, so keys can be read on the way."
    return None
