"""Connections to tool servers: stdio, streamable HTTP, legacy SSE and in-process."""

from fingerpost.servers.library import SignInStore as SignInStore
from fingerpost.servers.library import sign_in as sign_in
from fingerpost.servers.pool import ServerPool as ServerPool
from fingerpost.servers.requests import RequestContext as RequestContext
from fingerpost.servers.spec import Server as Server
