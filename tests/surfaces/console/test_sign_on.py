"""A person signs on to the console at an OpenID provider, and out at both."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.kit.browser import run_server, visit
from tests.kit.identity_provider import CLIENT, SECRET, run_identity_provider
from tests.requirements import proves


@pytest.mark.process
@proves("M23")
def test_a_person_signs_on_and_out(browser: Browser, tmp_path: Path) -> None:
    with run_identity_provider({"olaf": {}}) as issuer:
        oidc = {"issuer": issuer, "client_id": CLIENT, "client_secret": SECRET, "scopes": ["openid"]}
        with (
            run_server(tmp_path, gateway={"require_key": True}, console={"oidc": oidc}) as server,
            visit(browser, server, "", expected="Failed to load resource|Content Security Policy") as page,
        ):
            page.get_by_role("button", name=f"Sign in with {issuer.removeprefix('http://')}").click()
            page.get_by_placeholder("Enter any login").fill("olaf")
            page.get_by_placeholder("and password").fill("any")
            page.get_by_role("button", name="Sign-in").click()
            expect(page.get_by_text("sso:olaf")).to_be_visible()
            assert page.url == f"{server.address}/#/live"
            page.get_by_role("button", name="Sign out").click()
            page.wait_for_url(f"{issuer}/session/end**")
            page.goto(server.address)
            expect(page.get_by_label("Key")).to_be_visible()
