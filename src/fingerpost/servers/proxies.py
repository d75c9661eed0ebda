"""The proxies that the environment names: whether they can be used, and which of them a request takes."""

from __future__ import annotations

from urllib.request import getproxies

import httpx2

from fingerpost.frozen import frozen


class RouteBlocked(httpx2.ConnectError):
    """No connection, for a reason that lies around us and not with the server: `hint` says what to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@frozen
class ProxyVariable:
    """A proxy and the variable that names it."""

    variable: str
    place: str  # without what may be secret in its address

    def __str__(self) -> str:
        return f"the proxy {self.place} (from {self.variable})"


def find_unusable_proxy() -> RouteBlocked | None:
    """What is wrong with the first variable that names no proxy one could use."""
    for scheme, value in _read_proxy_variables():
        try:
            httpx2.Proxy(_format_proxy_address(value))
        except (httpx2.InvalidURL, ValueError):
            variable = _find_variable(scheme)
            message = f"the environment variable {variable} does not hold the address of a proxy"
            return RouteBlocked(message, hint=f"correct {variable}, or take it out of the environment")
    return None


def find_proxy(url: httpx2.URL) -> ProxyVariable | None:
    """The proxy a request to `url` takes, where it takes one."""
    named = dict(_read_proxy_variables())
    for scheme in (url.scheme, "all"):
        if scheme in named:
            parts = httpx2.URL(_format_proxy_address(named[scheme]))
            place = parts.host if parts.port is None else f"{parts.host}:{parts.port}"
            return ProxyVariable(variable=_find_variable(scheme), place=place)
    return None


def build_proxy_error(error: httpx2.TransportError, proxy: ProxyVariable) -> RouteBlocked:
    """Why a proxy led nowhere."""
    instead = f"correct {proxy.variable}, or name the server's host in NO_PROXY"
    if not isinstance(error, httpx2.ProxyError):
        return RouteBlocked(f"{proxy} cannot be reached", hint=f"is it running? Else {instead}")
    message = f"{proxy} refuses to lead there: {error}"
    if str(error).startswith("407"):
        return RouteBlocked(message, hint=f"it wants a user and a password: {instead}")
    return RouteBlocked(message, hint=f"the proxy's own rules decide that; or {instead}")


def _read_proxy_variables() -> list[tuple[str, str]]:
    named = getproxies()
    return [(scheme, named[scheme]) for scheme in ("http", "https", "all") if named.get(scheme)]


def _format_proxy_address(value: str) -> str:
    return value if "://" in value else f"http://{value}"


def _find_variable(scheme: str) -> str:
    return f"{scheme.upper()}_PROXY"
