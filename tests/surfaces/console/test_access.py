"""Keys, users and limits on the console."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from fingerpost.records import AccessRole, Right
from fingerpost.servers.library import build_user_token_name
from tests.kit.browser import both_schemes, check_access, run_server, visit
from tests.requirements import proves


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Sign in").click()


@proves("M30", "M32", "V3", "V7")
def test_an_administrator_makes_and_revokes_keys_disables_users_and_sets_limits(
    browser: Browser, tmp_path: Path
) -> None:
    with run_server(tmp_path, gateway={"require_key": True}) as server:
        keys = server.router.store.keys
        _, admin = server.do(keys.add, "root", roles=(AccessRole.ADMIN,), rights=())
        _, guard = server.do(keys.add, "guard", rights=(Right.USE, Right.WATCH))
        with visit(browser, server, "#/access", expected="401") as page:
            sign_in(page, admin)
            form = page.get_by_role("form", name="New key")
            form.get_by_label("Name").fill("laptop")
            form.get_by_label("User").fill("dana")
            form.get_by_role("button", name="Make a key").click()
            made = page.get_by_role("status").filter(has_text="Save the key of laptop").locator("code")
            found = server.do(keys.find, made.inner_text())
            assert found is not None
            assert (found.user, found.roles) == ("dana", (AccessRole.USER,))

            users = page.get_by_role("table", name="Users")
            name = build_user_token_name("linear", "dana")
            server.do(server.router.store.tokens.put, name, b"{}")
            page.reload()
            signed_in = users.get_by_role("row", name="dana")
            expect(signed_in).to_contain_text("linear")
            signed_in.get_by_role("button", name="Sign out").click()
            expect(signed_in).not_to_contain_text("linear")
            assert not server.do(server.router.store.tokens.has, name)
            users.get_by_role("row", name="dana").get_by_role("button", name="Disable").click()
            expect(users.get_by_role("row", name="dana").get_by_role("button", name="Enable")).to_be_visible()
            assert server.router.users.apply(found.build_principal()) is None

            row = page.get_by_role("table", name="Keys").get_by_role("row", name="laptop")
            row.get_by_role("button", name="Revoke").click()
            expect(row).to_contain_text("revoked")

            limit = page.get_by_role("form", name="New limit")
            limit.get_by_label("Named").fill("da*")
            limit.get_by_label("At most").fill("60")
            limit.get_by_role("button", name="Add").click()
            limits = page.get_by_role("table", name="Limits")
            expect(limits).to_contain_text("60 calls per minute")
            assert [quota.match for quota in server.router.quotas.all] == ["da*"]
            for scheme, width in both_schemes():
                page.emulate_media(color_scheme=scheme)
                page.set_viewport_size({"width": width, "height": 900})
                check_access(page)
        with visit(browser, server, "#/access", expected="401") as page:
            sign_in(page, guard)
            expect(page.get_by_role("table", name="Limits")).to_contain_text("60 calls per minute")
            expect(page.locator("main").get_by_role("button")).to_have_count(0)
            expect(page.get_by_role("heading", name="Keys")).to_have_count(0)
