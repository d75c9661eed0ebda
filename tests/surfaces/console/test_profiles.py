"""Ask under a profile: which there are, the one that is usual, and the directives that come of it."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from fingerpost.builtin import BuiltinHost, make_server
from fingerpost.testing import ScriptedModel, calls
from tests.kit.browser import check_access, run_server, visit
from tests.requirements import proves

MOVE = {"target": "lamp-1", "position": {"x": 1, "y": 1.5, "z": -2}}


@proves("U14", "U15")
def test_a_profile_is_chosen_and_its_directives_are_shown(browser: Browser, tmp_path: Path):
    model = ScriptedModel([calls(("directives__move_object", MOVE)), "The lamp moves."])
    profiles = {"plain": {"default": True, "effects": ["read"]}, "scene": {"servers": ["directives"]}}
    with (
        run_server(
            tmp_path,
            servers=[make_server("directives", BuiltinHost()).build_spec()],
            model=model,
            profiles=profiles,
            builtin={"enabled": ["directives"]},
            policy=[{"verdict": "allow", "server": "directives"}],
        ) as server,
        visit(browser, server, "#/ask") as page,
    ):
        chosen = page.get_by_label("Profile")
        expect(chosen.locator("option")).to_have_text(["default: plain", "plain", "scene"])
        chosen.select_option("scene")
        page.get_by_label("Mode").select_option("simple")
        page.get_by_label("Request").fill("Move the lamp object one metre to the left in my scene")
        page.get_by_role("button", name="Run", exact=True).click()
        directives = page.get_by_role("region", name="Directives")
        expect(directives.get_by_role("listitem")).to_have_count(1)
        expect(directives).to_contain_text("move_object lamp-1")
        expect(directives).to_contain_text('"y":1.5')
        check_access(page)
