"""The whole pipeline, held together."""

from fingerpost.router.agent import Agent, AgentMode, AgentStatus, Thresholds
from fingerpost.router.given import ModelNames
from fingerpost.router.policy import Policy
from fingerpost.router.route import AnswerPiece, Route
from fingerpost.router.router import Router
from fingerpost.router.switches import Switched, Switches
from fingerpost.router.tally import AgentStats
from fingerpost.router.wanted import Asking, Circumstances, Wanted

__all__ = [
    "Agent",
    "AgentMode",
    "AgentStats",
    "AgentStatus",
    "AnswerPiece",
    "Asking",
    "Circumstances",
    "ModelNames",
    "Policy",
    "Route",
    "Router",
    "Switched",
    "Switches",
    "Thresholds",
    "Wanted",
]
