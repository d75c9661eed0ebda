"""Connections to tool servers: stdio, streamable HTTP, legacy SSE and in-process."""

from fingerpost.servers.oauth import SignInStore, sign_in
from fingerpost.servers.pool import ServerPool
from fingerpost.servers.requests import CallerChannel, ProgressCallback, RequestContext
from fingerpost.servers.spec import Server

__all__ = [
    "CallerChannel",
    "ProgressCallback",
    "RequestContext",
    "Server",
    "ServerPool",
    "SignInStore",
    "sign_in",
]
