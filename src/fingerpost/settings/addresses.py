"""What an address says: whose machine it leads to, and whether what comes from there can be believed."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and nobody else can reach it."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def host_of(url: str) -> str:
    """The host of a URL, empty when it has none."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def base_of(url: str) -> str | None:
    """`https://host:port` of an http or https URL, None for anything else."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in DEFAULT_PORTS and bool(parts.hostname)
    except ValueError:
        return None
    return f"{parts.scheme}://{parts.netloc}" if known else None


def is_trustworthy(url: str) -> bool:
    """Whether what comes from this address can be believed: nobody on the way could have changed it."""
    base = base_of(url)
    return base is not None and (base.startswith("https:") or is_loopback(host_of(url)))
