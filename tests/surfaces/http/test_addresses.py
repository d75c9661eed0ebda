"""Which Hosts and Origins are taken: the defence against pages that make their own name point here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.errors import ConfigError
from fingerpost.settings.model import GatewaySettings, SignInSettings
from fingerpost.settings.validation import is_loopback
from fingerpost.surfaces.http.addresses import AllowedHosts, Authority, WebOrigin
from fingerpost.surfaces.http.authenticator import check_exposure
from tests.kit.tables import table
from tests.requirements import proves

HOME = Authority("127.0.0.1", 8642)


def is_accepted(
    host: str, origin: str | None = None, settings: GatewaySettings | None = None, *, bound: Authority = HOME
) -> bool:
    headers = {"host": host} if origin is None else {"host": host, "origin": origin}
    return AllowedHosts(settings or GatewaySettings(), bound).get_target(headers).refusal is None


@proves("G11", "F50")
@table("host", ["127.0.0.1:8642", "localhost:8642", "LOCALHOST", "[::1]:8642", "localhost.:1"])
def test_the_names_of_this_machine_are_taken(host: str) -> None:
    assert is_accepted(host)


@proves("G11", "F50")
@table(
    "host",
    [
        "evil.example:8642",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost@evil.example",
        "evil.example/localhost",
        "192.168.1.4:8642",
        "localhost:99999",
        "localhost:",
        "[::1",
        "",
    ],
)
def test_every_other_host_is_refused(host: str) -> None:
    assert not is_accepted(host)


@proves("G11")
def test_hosts_the_operator_names_are_taken_and_their_port_counts_where_it_is_said() -> None:
    hosts = GatewaySettings(allowed_hosts=("tools.lan", "*.corp.example", "strict.lan:9000"))
    bound = Authority("10.0.0.7", 8642)
    assert is_accepted("tools.lan:1234", settings=hosts, bound=bound)
    assert is_accepted("a.corp.example", settings=hosts, bound=bound)
    assert is_accepted("strict.lan:9000", settings=hosts, bound=bound)
    assert not is_accepted("strict.lan:9001", settings=hosts, bound=bound)
    assert not is_accepted("corp.example.evil", settings=hosts, bound=bound)
    assert is_accepted("10.0.0.7:8642", settings=hosts, bound=bound)
    assert is_accepted("myhost:8642", settings=GatewaySettings(host="MyHost"), bound=bound)
    assert not is_accepted("10.0.0.8:8642", settings=hosts, bound=bound)


@proves("G11")
def test_listening_everywhere_takes_addresses_in_numbers_but_no_name_it_does_not_know() -> None:
    everywhere = Authority("0.0.0.0", 8642)
    assert is_accepted("10.1.2.3:8642", bound=everywhere)
    assert is_accepted("[fe80::1]:8642", bound=everywhere)
    assert not is_accepted("tools.example:8642", bound=everywhere)
    assert is_accepted(
        "tools.example", settings=GatewaySettings(public_url="https://tools.example/fp"), bound=everywhere
    )


@proves("G11", "F50")
@table(
    ("origin", "expected"),
    [
        (None, True),
        ("http://127.0.0.1:8642", True),
        ("http://localhost:8642", True),
        ("http://localhost:3000", False),  # another program of this machine serves that page
        ("https://evil.example", False),
        ("null", False),
        ("", False),
        ("http://localhost:8642.evil.example", False),
        ("http://localhost:8642@evil.example", False),
        ("https://pages.example", True),
        ("https://pages.example:444", False),
        ("http://pages.example", False),
        ("http://dev.local:5173", True),
        ("http://dev.local:5174", True),
        ("https://a.team.example", True),
        ("https://team.example.evil", False),
        ("vscode-webview://abc", True),
    ],
)
def test_pages_may_call_only_from_where_it_is_allowed(origin: str | None, expected: bool) -> None:
    allowed = (
        "https://pages.example",
        "http://dev.local:*",
        "https://*.team.example",
        "vscode-webview://abc",
    )
    settings = GatewaySettings(allowed_origins=allowed)
    assert is_accepted("127.0.0.1:8642", origin, settings) is expected


@proves("G11")
def test_pages_of_the_public_address_may_call() -> None:
    public = GatewaySettings(public_url="https://tools.example/fp")
    assert is_accepted("tools.example", "https://tools.example", public)
    assert not is_accepted("tools.example", "http://tools.example", public)
    assert not is_accepted("tools.example", "https://tools.example:8443", public)


@given(st.text(max_size=60), st.none() | st.text(max_size=60))
def test_any_text_gets_an_answer_and_only_names_of_ours_are_taken(host: str, origin: str | None) -> None:
    if is_accepted(host, origin):
        authority = Authority.parse(host)
        assert authority is not None
        assert is_loopback(authority.host)
        assert origin is None or WebOrigin.parse(origin) is not None


@proves("G10")
@table(
    "settings",
    [
        {"host": "0.0.0.0"},
        {"host": "192.168.1.4"},
        {"host": "::"},
        {"host": "myhost"},
        {"public_url": "https://tools.example"},  # a proxy in front of loopback is a network, too
    ],
)
def test_the_gateway_does_not_start_open_to_a_network(settings: dict[str, str]) -> None:
    gateway = GatewaySettings.model_validate(settings)
    with pytest.raises(ConfigError, match="open to every program") as caught:
        check_exposure(gateway, has_keys=False)
    assert "fingerpost keys add" in (caught.value.hint or "")
    check_exposure(gateway, has_keys=True)
    sign_in = SignInSettings(issuer="https://id.example", audience="https://tools.example/mcp")
    check_exposure(gateway.model_copy(update={"sign_in": sign_in}), has_keys=False)


@proves("G10")
def test_keys_that_travel_in_the_clear_are_pointed_out() -> None:
    assert check_exposure(GatewaySettings(), has_keys=False) is None
    assert check_exposure(GatewaySettings(host="::1"), has_keys=False) is None
    assert "TLS" in (check_exposure(GatewaySettings(host="0.0.0.0"), has_keys=True) or "")
    plain = GatewaySettings(host="0.0.0.0", public_url="http://tools.example")
    assert "not https" in (check_exposure(plain, has_keys=True) or "")
    safe = GatewaySettings(host="0.0.0.0", public_url="https://tools.example")
    assert check_exposure(safe, has_keys=True) is None
