"""Connections to tool servers: stdio, streamable HTTP, legacy SSE and in-process."""

from fingerpost.servers.caller import CallerSide, Passage
from fingerpost.servers.login import login
from fingerpost.servers.oauth import TokenBook
from fingerpost.servers.pool import Servers
from fingerpost.servers.spec import Server
from fingerpost.servers.talk import Progress

__all__ = ["CallerSide", "Passage", "Progress", "Server", "Servers", "TokenBook", "login"]
