"""What each caller may see of the catalog, worked out once."""

from __future__ import annotations

from fingerpost.policy.visibility import VisibilityCache
from fingerpost.settings import RuleSettings
from tests.kit.cards import snapshot
from tests.requirements import proves

GUESTS = RuleSettings(verdict="deny", tool="mail/send", caller="guest")
SECRET = RuleSettings(verdict="deny", tool="*/secret")


@proves("N1")
def test_callers_whom_a_rule_tells_apart_see_different_tools() -> None:
    sight, tools = VisibilityCache([GUESTS]), snapshot(mail=[{"name": "send"}, {"name": "read"}])
    assert [card.key for card in sight.get_view(tools, "guest", None).visible.cards] == ["mail/read"]
    assert sight.get_view(tools, "dana", None).visible is tools
    assert list(sight.get_view(tools, "guest", None).hidden) == ["mail/send"]


@proves("N1")
def test_a_changed_catalog_is_looked_at_anew() -> None:
    sight = VisibilityCache([SECRET])
    assert sight.get_view(snapshot(a=[{"name": "open"}]), "dana", None).hidden == {}
    later = sight.get_view(snapshot(a=[{"name": "open"}], b=[{"name": "secret"}]), "dana", None)
    assert list(later.hidden) == ["b/secret"]
    assert later.server_count == 1


def test_callers_no_rule_tells_apart_share_one_view() -> None:
    sight, tools = VisibilityCache([SECRET]), snapshot(a=[{"name": "secret"}])
    assert sight.get_view(tools, "dana", "work") is sight.get_view(tools, "noam", None)
