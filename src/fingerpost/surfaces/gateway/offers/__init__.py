"""What each endpoint offers: which tools, in which words, on which pages."""

from fingerpost.surfaces.gateway.offers.places import Place, Places, UnknownProfile
from fingerpost.surfaces.gateway.offers.tools import Offer, ToolOffers

__all__ = ["Offer", "Place", "Places", "ToolOffers", "UnknownProfile"]
