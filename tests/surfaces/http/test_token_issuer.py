"""An issuer whose keys cannot be fetched: callers learn little, the operator learns why."""

from __future__ import annotations

import pytest

from fingerpost.events import MemorySink
from fingerpost.settings.model import GatewaySettings, SignInSettings
from fingerpost.surfaces.http.access import AccessDenial, Endpoint
from fingerpost.surfaces.http.authenticator import build_authenticator
from fingerpost.surfaces.http.credentials import KnownCredential, UndecidedCredential
from fingerpost.surfaces.http.tokens import TokenCheck
from tests.kit.clock import Clock
from tests.kit.token_issuer import AUDIENCE, authority
from tests.requirements import proves
from tests.surfaces.http.test_tokens import NoKeys

pytestmark = pytest.mark.anyio


@proves("G10")
async def test_the_log_names_an_issuer_that_cannot_be_reached_once_and_no_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sign_in = SignInSettings(issuer="http://127.0.0.1:1/nope", audience=AUDIENCE)
    settings = GatewaySettings(sign_in=sign_in, require_key=True)
    gate = build_authenticator(settings, keys=NoKeys(), events=MemorySink(), bound="127.0.0.1:8642")
    async with authority() as other:
        tokens = [other.token(), other.token(sub="eve")]
    for token in (*tokens, *tokens):
        headers = {"host": "127.0.0.1", "authorization": f"Bearer {token}"}
        refused = await gate.authenticate(headers, Endpoint(path="/mcp", mode="auto"))
        assert isinstance(refused, AccessDenial)
        assert (refused.status, "127.0.0.1:1" in refused.message) == (503, False)
    [record] = [record for record in caplog.records if record.name == "fingerpost.access"]
    text = record.getMessage()
    assert record.levelname == "WARNING"
    assert "http://127.0.0.1:1/nope" in text
    assert "gateway.sign_in.issuer" in text
    assert not any(token in caplog.text for token in tokens)


@proves("G10")
async def test_another_cause_is_told_too_and_so_is_the_same_one_after_a_recovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    async with authority() as issuer:
        check = TokenCheck(issuer.settings(), clock=clock)
        for where, verdict in (
            ("/a", UndecidedCredential),
            (issuer.metadata_path, KnownCredential),
            ("/a", KnownCredential),
        ):
            issuer.metadata_path = where
            assert isinstance(await check.check_credential(issuer.token()), verdict)
            clock.now += 700  # longer than keys are taken for new
    text = [record.getMessage() for record in caplog.records if record.name == "fingerpost.access"]
    assert len(text) == 2
    assert all("publishes no metadata" in message for message in text)
