"""The router: the whole pipeline from a request to its answer."""

from fingerpost.router.agent import Agent, AgentMode, AgentStats, AgentStatus, RoutingThresholds
from fingerpost.router.options import (
    CallKeywords,
    CallOptions,
    ModelNames,
    NarrowKeywords,
    NarrowOptions,
    RouteKeywords,
    RouteOptions,
    RuntimeOptions,
    RuntimeSwitches,
)
from fingerpost.router.profiles import Policy
from fingerpost.router.route import AnswerPiece, Route
from fingerpost.router.router import Router

__all__ = [
    "Agent",
    "AgentMode",
    "AgentStats",
    "AgentStatus",
    "AnswerPiece",
    "CallKeywords",
    "CallOptions",
    "ModelNames",
    "NarrowKeywords",
    "NarrowOptions",
    "Policy",
    "Route",
    "RouteKeywords",
    "RouteOptions",
    "Router",
    "RoutingThresholds",
    "RuntimeOptions",
    "RuntimeSwitches",
]
