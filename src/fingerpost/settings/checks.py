"""Values that are of the right kind and yet cannot be used: what would refuse them later refuses them here.

Said here they come with file and line; said where they are used, they come when somebody starts to serve.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.settings import rollouts
from fingerpost.settings.addresses import get_base_url, is_trustworthy
from fingerpost.settings.model import GatewaySettings, Settings, SignInSettings
from fingerpost.settings.problems import KeyPath, format_path

# Signatures anybody can check and only the issuer can make. Never `none`; never HS…, where checking needs the
# secret, and a public key taken for one would let everybody sign.
SIGNATURE_ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
STORE_HINT: Final = "Use sqlite:///path/to/file.db or postgresql://user@host/database."
_STORE_URL = re.compile(r"(?P<backend>\w+)(?:\+\w+)?://(?P<rest>.*)", re.DOTALL)


@frozen(kw_only=False)
class SettingFlaw:
    """What is wrong with one value, and how to put it right."""

    path: KeyPath
    message: str
    fix: str


def find_flaws(settings: Settings) -> Iterator[SettingFlaw]:
    """Everything that could not be used."""
    yield from find_gateway_flaws(settings.gateway)
    if settings.gateway.sign_in is not None:
        yield from find_sign_in_flaws(settings.gateway.sign_in)
    if settings.store.url is not None and (reason := find_store_url_fault(settings.store.url)) is not None:
        yield SettingFlaw(("store", "url"), reason, STORE_HINT)
    for index, field, message, fix in rollouts.find_rollout_problems(settings.rollout):
        yield SettingFlaw(("rollout", index, field), message, fix)


def raise_first_flaw(found: Iterable[SettingFlaw]) -> None:
    """Raise `ConfigError` for the first of them, where settings were made without a file."""
    for flaw in found:
        raise ConfigError(f"{format_path(flaw.path)}: {flaw.message}", hint=flaw.fix)


def find_gateway_flaws(gateway: GatewaySettings) -> Iterator[SettingFlaw]:
    """What nobody could be let in by."""
    if gateway.public_url is not None and get_base_url(gateway.public_url) is None:
        message = f"{gateway.public_url} is not an address"
        yield SettingFlaw(
            ("gateway", "public_url"), message, "write it whole, such as https://tools.example.com"
        )


def find_sign_in_flaws(sign_in: SignInSettings) -> Iterator[SettingFlaw]:
    """What would let in more than those the issuer knows, or nobody."""
    path = ("gateway", "sign_in")
    wrong = [name for name in sign_in.algorithms if name not in SIGNATURE_ALGORITHMS]
    if wrong or not sign_in.algorithms:
        message = f"{', '.join(wrong) or 'none'} cannot be used"
        yield SettingFlaw((*path, "algorithms"), message, f"choose from {', '.join(SIGNATURE_ALGORITHMS)}")
    for name, url in (("issuer", sign_in.issuer), ("jwks_url", sign_in.jwks_url)):
        if url is not None and not is_trustworthy(url):
            fix = "whoever can change it on the way could sign tokens; use https"
            yield SettingFlaw((*path, name), f"{url} is not an https address", fix)


def find_store_url_fault(url: str) -> str | None:
    """Why the store cannot be kept there. Never quotes the URL: it may hold a password."""
    read = _STORE_URL.fullmatch(url)
    if read is None:
        return "the store's URL cannot be read"
    backend = read["backend"]
    if backend not in ("sqlite", "postgresql", "postgres"):
        return f"the store cannot be kept in {backend!r}"
    if backend == "sqlite" and read["rest"].partition("?")[0].lstrip("/") in ("", ":memory:"):
        return "the store needs a file: a database in memory would forget what it acknowledged"
    return None
