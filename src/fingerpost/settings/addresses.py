"""What an address says: whose machine it leads to, and whether what comes from there can be believed."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
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


def get_host(url: str) -> str:
    """The host of a URL, empty when it has none."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def get_base_url(url: str) -> str | None:
    """`https://host:port` of an http or https URL, None for anything else."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in DEFAULT_PORTS and bool(parts.hostname)
    except ValueError:
        return None
    return f"{parts.scheme}://{parts.netloc}" if known else None


def is_trustworthy(url: str) -> bool:
    """Whether what comes from this address can be believed: nobody on the way could have changed it."""
    base = get_base_url(url)
    return base is not None and (base.startswith("https:") or is_loopback(get_host(url)))


# Names under which clouds serve credentials of the machine to whatever runs on it.
_METADATA_NAMES: Final = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
# Addresses of the same outside of the link-local ranges: AWS over IPv6, Alibaba, Oracle.
_METADATA_ADDRESSES: Final = frozenset(map(ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192")))
_NAT64: Final = ip_network("64:ff9b::/96")
LINK_LOCAL_MESSAGE: Final = "is a link-local or metadata address, where clouds keep credentials"
LINK_LOCAL_FIX: Final = "set allow_link_local = true for this server if that is what you want"


def is_link_local(host: str) -> bool:
    """Whether a host name or address is link-local (169.254.0.0/16, fe80::/10) or a cloud's metadata service.

    Only by what is written: what a name stands for is known when it is looked up.
    """
    name = host.strip("[]").rstrip(".").lower()
    if name in _METADATA_NAMES:
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        address = inner or address
    return address.is_link_local or address in _METADATA_ADDRESSES
