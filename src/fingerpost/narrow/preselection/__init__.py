"""Which servers a conversation works with: chosen once, by a light model call or by scores."""

from fingerpost.narrow.preselection.figures import SmartRoutingFigures, stored_figures
from fingerpost.narrow.preselection.picker import ServerPicker, is_wanted
from fingerpost.narrow.preselection.prompt import read_template
from fingerpost.narrow.preselection.scores import pick_by_scores

__all__ = [
    "ServerPicker",
    "SmartRoutingFigures",
    "is_wanted",
    "pick_by_scores",
    "read_template",
    "stored_figures",
]
