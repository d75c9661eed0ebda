"""What each endpoint offers: which tools, in which words, on which pages."""

from fingerpost.surfaces.gateway.offers.places import EndpointConfig, EndpointConfigs, UnknownProfile
from fingerpost.surfaces.gateway.offers.tools import EndpointTools, ToolListing

__all__ = ["EndpointConfig", "EndpointConfigs", "EndpointTools", "ToolListing", "UnknownProfile"]
