"""Connections to tool servers: stdio, streamable HTTP, legacy SSE and in-process."""

from fingerpost.servers.login import login
from fingerpost.servers.oauth import TokenBook
from fingerpost.servers.pool import Progress, Servers
from fingerpost.servers.spec import Server

__all__ = ["Progress", "Server", "Servers", "TokenBook", "login"]
