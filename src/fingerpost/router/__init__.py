"""The whole pipeline, held together."""

from fingerpost.router.agent import Agent, AgentMode, AgentStatus, RoutingThresholds
from fingerpost.router.given import ModelNames
from fingerpost.router.policy import Policy
from fingerpost.router.route import AnswerPiece, Route
from fingerpost.router.router import Router
from fingerpost.router.switches import RuntimeOptions, RuntimeSwitches
from fingerpost.router.tally import AgentStats
from fingerpost.router.wanted import CallOptions, NarrowOptions, RouteOptions

__all__ = [
    "Agent",
    "AgentMode",
    "AgentStats",
    "AgentStatus",
    "AnswerPiece",
    "CallOptions",
    "ModelNames",
    "NarrowOptions",
    "Policy",
    "Route",
    "RouteOptions",
    "Router",
    "RoutingThresholds",
    "RuntimeOptions",
    "RuntimeSwitches",
]
