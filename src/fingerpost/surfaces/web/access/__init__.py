"""Who asks: hosts and origins, API keys, signed tokens, and whether to listen at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fingerpost.errors import ConfigError
from fingerpost.events import EventSink
from fingerpost.records import Principal, Right
from fingerpost.settings.checks import find_gateway_flaws, raise_first_flaw
from fingerpost.settings.model import GatewaySettings
from fingerpost.surfaces.web.access.addresses import Authority, is_loopback, parse_authority
from fingerpost.surfaces.web.access.documents import ResourceMetadata
from fingerpost.surfaces.web.access.exposure import check_exposure, is_exposed
from fingerpost.surfaces.web.access.gate import LOCAL_PRINCIPAL, HttpAuthenticator
from fingerpost.surfaces.web.access.hosts import AllowedHosts
from fingerpost.surfaces.web.access.keys import ApiKeyCheck, ApiKeyLookup
from fingerpost.surfaces.web.access.resources import ProtectedResources

__all__ = ["HttpAuthenticator", "build_authenticator", "check_exposure", "is_exposed"]


def build_authenticator(
    settings: GatewaySettings,
    *,
    keys: ApiKeyLookup,
    events: EventSink,
    bound: str,
    profiles: Iterable[str] = (),
) -> HttpAuthenticator:
    """The gate for a gateway that listens at `bound` (`host:port`).

    Raises `ConfigError` for settings nobody could be let in by.
    """
    address = parse_authority(bound) or Authority(settings.host, settings.port)
    _check_settings(settings)
    resources = ProtectedResources(settings, bound=bound, profiles=profiles)
    tokens = None
    if settings.sign_in is not None:
        # Loads the library for signatures, which a gateway without sign-in need not pay for.
        from fingerpost.surfaces.web.access.tokens import TokenCheck

        tokens = TokenCheck(settings.sign_in, audiences=resources.get_audiences)
    hosts = AllowedHosts(settings, address)
    at_home = is_loopback(address.host) and not is_exposed(settings) and not hosts.allows_any_origin
    return HttpAuthenticator(
        hosts=hosts,
        documents=ResourceMetadata(settings.sign_in, resources),
        keys=ApiKeyCheck(keys),
        tokens=tokens,
        events=events,
        local=_build_local_principal(settings) if at_home and not settings.require_key else None,
    )


def _build_local_principal(settings: GatewaySettings) -> Principal:
    """Who it is that needs no key."""
    confirms = (Right.CONFIRM,) if settings.local_confirm else ()
    return replace(LOCAL_PRINCIPAL, rights=(*LOCAL_PRINCIPAL.rights, *confirms))


def _check_settings(settings: GatewaySettings) -> None:
    raise_first_flaw(find_gateway_flaws(settings))
    for entry in settings.allowed_hosts:
        if parse_authority(entry) is None:
            message = f"gateway.allowed_hosts: {entry} is not a host"
            raise ConfigError(message, hint="write a name, or name:port, without http://")
