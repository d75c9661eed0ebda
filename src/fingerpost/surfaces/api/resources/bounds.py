"""What of the house somebody may see and manage: a key bounded to some tools is bounded here, too."""

from __future__ import annotations

from collections.abc import Sequence

from fingerpost.call.patterns import Fit, fits_exactly
from fingerpost.records import Principal


def sees_tool(principal: Principal, server: str, key: str) -> bool:
    """Whether the tool lies within their scope. What it does to the world is the policy's matter."""
    scope = principal.scope
    return _one_of(scope.servers, server) and _one_of(scope.tools, key)


def sees_server(principal: Principal, server: str) -> bool:
    """Whether any tool of the server may lie within their scope."""
    scope = principal.scope
    owners = tuple(pattern.partition("/")[0] for pattern in scope.tools)
    return _one_of(scope.servers, server) and _one_of(owners, server)


def _one_of(patterns: Sequence[str], name: str) -> bool:
    return not patterns or any(fits_exactly(pattern, name) is Fit.YES for pattern in patterns)
