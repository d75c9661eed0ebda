"""What each endpoint lists: tools, resources, prompts, and tool search."""

from fingerpost.surfaces.gateway.listing.tools import (
    EndpointConfig,
    EndpointConfigs,
    EndpointTools,
    ToolListing,
    UnknownProfile,
)

__all__ = ["EndpointConfig", "EndpointConfigs", "EndpointTools", "ToolListing", "UnknownProfile"]
