"""Connections to tool servers: stdio, streamable HTTP, legacy SSE and in-process."""

from fingerpost.servers.caller import CallerChannel, RequestContext
from fingerpost.servers.login import sign_in
from fingerpost.servers.oauth import SignInStore
from fingerpost.servers.pool import ServerPool
from fingerpost.servers.spec import Server
from fingerpost.servers.talk import ProgressCallback

__all__ = [
    "CallerChannel",
    "ProgressCallback",
    "RequestContext",
    "Server",
    "ServerPool",
    "SignInStore",
    "sign_in",
]
