"""Fingerpost: the intelligent router between language models and tools.

    from fingerpost import Router, Server

    async with Router([Server.stdio("time", ["mcp-server-time"])]) as router:
        route = await router.route("What time is it in Tokyo right now?")
        print(route.outcome, route.answer)

The models are in `fingerpost.llm`, a router for programs without an event loop is in `fingerpost.embed`,
and what tests need is in `fingerpost.testing`.

Names are loaded when they are first used, so that `import fingerpost` costs next to nothing.
"""

import gc
from importlib import import_module

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is at run time, without the cost of importing typing
if TYPE_CHECKING:
    from fingerpost.catalog import Catalog, Snapshot
    from fingerpost.errors import ConfigError, FingerpostError
    from fingerpost.events import Event, EventSink
    from fingerpost.narrow.scorer import Scorer, ScorerRequest, ToolScore
    from fingerpost.policy.rules import PolicyRule
    from fingerpost.records import (
        Approval,
        Call,
        CallContext,
        Decision,
        Effect,
        Message,
        Mode,
        Narrowing,
        Outcome,
        Packet,
        Pending,
        Question,
        RouteOutcome,
        Ruling,
        Selection,
        ServerSpec,
        ToolCard,
        Verdict,
    )
    from fingerpost.router import Agent, AnswerPiece, Policy, Route, Router
    from fingerpost.servers import Server
    from fingerpost.settings import Settings, load
    from fingerpost.store import Store

__version__ = "0.1.0"

_NAMES = {
    "catalog": "Catalog Snapshot",
    "errors": "ConfigError FingerpostError",
    "events": "Event EventSink",
    "narrow.scorer": "Scorer ScorerRequest ToolScore",
    "policy.rules": "PolicyRule",
    "records": "Approval Call CallContext Decision Effect Message Mode Narrowing Outcome Packet Pending "
    "Question RouteOutcome Ruling Selection ServerSpec ToolCard Verdict",
    "router": "Agent AnswerPiece Policy Route Router",
    "servers": "Server",
    "settings": "Settings load",
    "store": "Store",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Agent",
    "AnswerPiece",
    "Approval",
    "Call",
    "CallContext",
    "Catalog",
    "ConfigError",
    "Decision",
    "Effect",
    "Event",
    "EventSink",
    "FingerpostError",
    "Message",
    "Mode",
    "Narrowing",
    "Outcome",
    "Packet",
    "Pending",
    "Policy",
    "PolicyRule",
    "Question",
    "Route",
    "RouteOutcome",
    "Router",
    "Ruling",
    "Scorer",
    "ScorerRequest",
    "Selection",
    "Server",
    "ServerSpec",
    "Settings",
    "Snapshot",
    "Store",
    "ToolCard",
    "ToolScore",
    "Verdict",
    "load",
]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        message = f"module 'fingerpost' has no attribute {name!r}"
        raise AttributeError(message)
    # Looking for garbage in what is being loaded takes a tenth of the time and finds none.
    collects = gc.isenabled()
    gc.disable()
    try:
        return getattr(import_module(f"fingerpost.{module}"), name)
    finally:
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
