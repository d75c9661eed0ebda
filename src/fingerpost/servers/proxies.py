"""The proxies that the environment names: whether they can be used, and which of them a request takes."""

from __future__ import annotations

from urllib.request import getproxies

import httpx2

from fingerpost.frozen import frozen


class WayBlocked(httpx2.ConnectError):
    """No connection, for a reason that lies around us and not with the server: `hint` says what to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@frozen
class NamedProxy:
    """A proxy and the variable that names it."""

    variable: str
    place: str  # without what may be secret in its address

    def __str__(self) -> str:
        return f"the proxy {self.place} (from {self.variable})"


def unusable_proxy() -> WayBlocked | None:
    """What is wrong with the first variable that names no proxy one could use."""
    for scheme, value in _named():
        try:
            httpx2.Proxy(_address(value))
        except (httpx2.InvalidURL, ValueError):
            variable = _variable(scheme)
            message = f"the environment variable {variable} does not hold the address of a proxy"
            return WayBlocked(message, hint=f"correct {variable}, or take it out of the environment")
    return None


def proxy_for(url: httpx2.URL) -> NamedProxy | None:
    """The proxy a request to `url` takes, where it takes one."""
    named = dict(_named())
    for scheme in (url.scheme, "all"):
        if scheme in named:
            parts = httpx2.URL(_address(named[scheme]))
            place = parts.host if parts.port is None else f"{parts.host}:{parts.port}"
            return NamedProxy(variable=_variable(scheme), place=place)
    return None


def through_proxy(error: httpx2.TransportError, proxy: NamedProxy) -> WayBlocked:
    """Why a proxy led nowhere."""
    instead = f"correct {proxy.variable}, or name the server's host in NO_PROXY"
    if not isinstance(error, httpx2.ProxyError):
        return WayBlocked(f"{proxy} cannot be reached", hint=f"is it running? Else {instead}")
    message = f"{proxy} refuses to lead there: {error}"
    if str(error).startswith("407"):
        return WayBlocked(message, hint=f"it wants a user and a password: {instead}")
    return WayBlocked(message, hint=f"the proxy's own rules decide that; or {instead}")


def _named() -> list[tuple[str, str]]:
    named = getproxies()
    return [(scheme, named[scheme]) for scheme in ("http", "https", "all") if named.get(scheme)]


def _address(value: str) -> str:
    return value if "://" in value else f"http://{value}"


def _variable(scheme: str) -> str:
    return f"{scheme.upper()}_PROXY"
