"""Who asks: hosts and origins, API keys, signed tokens, and whether to listen at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fingerpost.errors import ConfigError
from fingerpost.events import EventSink
from fingerpost.records import Principal, Right
from fingerpost.settings.checks import gateway_flaws, refuse
from fingerpost.settings.model import GatewaySettings
from fingerpost.surfaces.web.access.addresses import Authority, is_loopback, read_authority
from fingerpost.surfaces.web.access.documents import Documents
from fingerpost.surfaces.web.access.exposure import check_exposure, is_exposed
from fingerpost.surfaces.web.access.gate import LOCAL, Doorkeeper
from fingerpost.surfaces.web.access.hosts import Hosts
from fingerpost.surfaces.web.access.keys import KeyBook, KeyCheck
from fingerpost.surfaces.web.access.resources import Resources

__all__ = ["Doorkeeper", "check_exposure", "is_exposed", "open_gate"]


def open_gate(
    settings: GatewaySettings,
    *,
    keys: KeyBook,
    events: EventSink,
    bound: str,
    profiles: Iterable[str] = (),
) -> Doorkeeper:
    """The gate for a gateway that listens at `bound` (`host:port`).

    Raises `ConfigError` for settings nobody could be let in by.
    """
    address = read_authority(bound) or Authority(settings.host, settings.port)
    _check(settings)
    resources = Resources(settings, bound=bound, profiles=profiles)
    tokens = None
    if settings.sign_in is not None:
        # Loads the library for signatures, which a gateway without sign-in need not pay for.
        from fingerpost.surfaces.web.access.tokens import TokenCheck

        tokens = TokenCheck(settings.sign_in, audiences=resources.audiences)
    hosts = Hosts(settings, address)
    at_home = is_loopback(address.host) and not is_exposed(settings) and not hosts.takes_every_page
    return Doorkeeper(
        hosts=hosts,
        documents=Documents(settings.sign_in, resources),
        keys=KeyCheck(keys),
        tokens=tokens,
        events=events,
        local=_local(settings) if at_home and not settings.require_key else None,
    )


def _local(settings: GatewaySettings) -> Principal:
    """Who it is that needs no key."""
    confirms = (Right.CONFIRM,) if settings.local_confirm else ()
    return replace(LOCAL, rights=(*LOCAL.rights, *confirms))


def _check(settings: GatewaySettings) -> None:
    refuse(gateway_flaws(settings))
    for entry in settings.allowed_hosts:
        if read_authority(entry) is None:
            message = f"gateway.allowed_hosts: {entry} is not a host"
            raise ConfigError(message, hint="write a name, or name:port, without http://")
