"""A user signs in to a server with the own account, on the console."""

from __future__ import annotations

from pathlib import Path

from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Browser, expect

from tests.kit.browser import run_server, visit
from tests.kit.oauth_authority import OAuthAuthority, serve_accounts
from tests.requirements import proves


@proves("M5")
def test_a_user_signs_in_and_out(browser: Browser, tmp_path: Path) -> None:
    authority = OAuthAuthority()
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(serve_accounts(authority)) as spec,
        run_server(tmp_path, servers=[spec], gateway={"require_key": True}) as server,
        visit(browser, server, "#/sign-ins", expected="401|410") as page,
    ):
        _, key = server.do(server.router.store.keys.add, "anna")
        page.get_by_label("Key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".badge")).to_have_text("not signed in")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("You are signed in to accounts")).to_be_visible()
        expect(page.locator(".badge")).to_have_text("signed in")
        assert page.url.endswith("/#/sign-ins")
        assert server.do(server.router.call, "accounts/get_account", {}, caller="anna").success
        page.locator("main").get_by_role("button", name="Sign out").click()
        expect(page.locator(".badge")).to_have_text("not signed in")
        assert authority.refresh == {}
        page.goto(f"{server.address}/#/sign-ins/accounts?link=of-another-user")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("was made for another user than anna")).to_be_visible()
