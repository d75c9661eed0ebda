"""Which servers a turn works with: chosen by a light model call once in a conversation, or by scores."""

from fingerpost.narrow.preselection.figures import RecentFigures, SmartRoutingFigures, adapted, stored_figures
from fingerpost.narrow.preselection.picker import ServerPicker, is_wanted
from fingerpost.narrow.preselection.prompt import read_template
from fingerpost.narrow.preselection.scores import pick_by_scores

__all__ = [
    "RecentFigures",
    "ServerPicker",
    "SmartRoutingFigures",
    "adapted",
    "is_wanted",
    "pick_by_scores",
    "read_template",
    "stored_figures",
]
