"""Which servers a turn works with: chosen by a light model call once in a conversation, or by scores."""

from fingerpost.narrow.preselection.figures import (
    RecentRoutingStats,
    SmartRoutingStats,
    adapt_settings,
    read_stored_stats,
)
from fingerpost.narrow.preselection.picker import ServerPicker, should_pick_servers
from fingerpost.narrow.preselection.prompt import read_template
from fingerpost.narrow.preselection.scores import pick_by_scores

__all__ = [
    "RecentRoutingStats",
    "ServerPicker",
    "SmartRoutingStats",
    "adapt_settings",
    "pick_by_scores",
    "read_stored_stats",
    "read_template",
    "should_pick_servers",
]
