"""Where a server may redirect during sign-in, for every way to write an address."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import httpx2
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.servers.oauth import find_url_fault
from tests.kit.tables import table
from tests.requirements import proves

SPELLINGS: list[Callable[[IPv4Address], str]] = [
    str,
    lambda address: f"{address}.",
    lambda address: str(int(address)),
    lambda address: hex(int(address)),
    lambda address: f"{int(address) >> 24}.{int(address) & 0xFFFFFF}",
    lambda address: f"[::ffff:{address}]",
    lambda address: f"[::FFFF:{int(address) >> 16:X}:{int(address) & 0xFFFF:X}]",
]
SERVERS = st.sampled_from(
    [
        "https://mcp.example/mcp",
        "http://mcp.example/mcp",
        "http://127.0.0.1:8000/mcp",
        "http://localhost/mcp",
        "https://10.0.0.7/mcp",
        "http://10.0.0.7:8000/mcp",
        "http://169.254.0.1/mcp",
    ]
)


def is_followed(address: str, server: str = "https://mcp.example/mcp") -> bool:
    return find_url_fault(httpx2.URL(address), server=httpx2.URL(server)) is None


def inside(network: str) -> st.SearchStrategy[IPv4Address]:
    chosen = IPv4Network(network)
    return st.integers(int(chosen[0]), int(chosen[-1])).map(IPv4Address)


@proves("H13")
@given(
    address=inside("169.254.0.0/16").filter(lambda address: str(address) != "169.254.0.1"),
    spell=st.sampled_from(SPELLINGS),
    scheme=st.sampled_from(["http", "https"]),
    server=SERVERS,
)
def test_nothing_link_local_is_followed_however_it_is_written(
    address: IPv4Address, spell: Callable[[IPv4Address], str], scheme: str, server: str
) -> None:
    assert not is_followed(f"{scheme}://{spell(address)}/latest/meta-data", server)


@proves("H13")
@given(
    number=st.integers(int(IPv6Network("fe80::/10")[0]), int(IPv6Network("fe80::/10")[-1])),
    zone=st.sampled_from(["", "%25eth0"]),
    scheme=st.sampled_from(["http", "https"]),
    server=SERVERS,
)
def test_nor_is_the_newer_kind(number: int, zone: str, scheme: str, server: str) -> None:
    assert not is_followed(f"{scheme}://[{IPv6Address(number)}{zone}]/", server)


@proves("H13")
@given(
    address=st.one_of(inside("10.0.0.0/8"), inside("192.168.0.0/16"), inside("203.0.113.0/24")).filter(
        lambda address: str(address) != "10.0.0.7"
    ),
    spell=st.sampled_from(SPELLINGS),
    server=SERVERS,
)
def test_any_other_address_is_followed_by_https_alone(
    address: IPv4Address, spell: Callable[[IPv4Address], str], server: str
) -> None:
    assert is_followed(f"https://{spell(address)}/token", server)
    assert not is_followed(f"http://{spell(address)}/token", server)


@proves("H13")
@table(
    ("address", "server"),
    [
        ("https://id.example/token", "https://mcp.example/mcp"),
        ("https://id.example/token", "http://127.0.0.1:8000/mcp"),
        ("http://127.0.0.1:9000/token", "http://localhost:8000/mcp"),
        ("http://localhost/token", "http://[::1]:8000/mcp"),
        ("http://10.0.0.7/token", "http://10.0.0.7:8000/mcp"),
        ("http://[fd00::7]/token", "http://[fd00:0::7]:8000/mcp"),
        ("http://tools:9000/token", "http://tools:8000/mcp"),
        ("http://nas.local/token", "http://NAS.local:8000/mcp"),
        ("http://169.254.3.4/token", "http://169.254.3.4:8000/mcp"),  # written there by a person
    ],
)
def test_where_a_server_may_lead(address: str, server: str) -> None:
    assert is_followed(address, server)


@proves("H13")
@table(
    ("address", "server"),
    [
        ("http://id.example/token", "https://mcp.example/mcp"),
        ("http://id.example/token", "http://127.0.0.1:8000/mcp"),
        ("http://mcp.example/token", "http://mcp.example/mcp"),
        ("http://127.0.0.1/token", "https://mcp.example/mcp"),
        ("http://localhost:8642/token", "http://10.0.0.7/mcp"),
        ("http://10.0.0.7/token", "https://10.0.0.7/mcp"),  # it could be https, and was
        ("http://other:9000/token", "http://tools:8000/mcp"),
        ("http://metadata.google.internal/", "http://tools.internal/mcp"),
        ("http://0.0.0.0/token", "http://127.0.0.1:8000/mcp"),
        ("http://169.254.3.5/token", "http://169.254.3.4:8000/mcp"),
        ("https://169.254.3.5/token", "http://169.254.3.4:8000/mcp"),
        ("file:///etc/passwd", "http://127.0.0.1:8000/mcp"),
        ("ms-calculator://x", "http://127.0.0.1:8000/mcp"),
        ("javascript:alert(1)", "http://127.0.0.1:8000/mcp"),
        ("https:///token", "http://127.0.0.1:8000/mcp"),
        ("", "http://127.0.0.1:8000/mcp"),
    ],
)
def test_where_it_may_not(address: str, server: str) -> None:
    assert not is_followed(address, server)
