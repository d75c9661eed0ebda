"""What a person can set, read from every place it can be set in, with the place of each value."""

from fingerpost.settings.load import Loaded, check, load
from fingerpost.settings.model import (
    CallSettings,
    DigestSettings,
    FlagSettings,
    LimitSettings,
    ModelSettings,
    ModelsSettings,
    NarrowSettings,
    OAuthSettings,
    RuleSettings,
    Section,
    ServerSettings,
    Settings,
    SmartRoutingSettings,
    StoreSettings,
    ToolOverride,
    ToolRoutingSettings,
)
from fingerpost.settings.problems import Origin, Problem

__all__ = [
    "CallSettings",
    "DigestSettings",
    "FlagSettings",
    "LimitSettings",
    "Loaded",
    "ModelSettings",
    "ModelsSettings",
    "NarrowSettings",
    "OAuthSettings",
    "Origin",
    "Problem",
    "RuleSettings",
    "Section",
    "ServerSettings",
    "Settings",
    "SmartRoutingSettings",
    "StoreSettings",
    "ToolOverride",
    "ToolRoutingSettings",
    "check",
    "load",
]
