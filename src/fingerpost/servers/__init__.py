"""Connections to tool servers: stdio, streamable HTTP, legacy SSE and in-process."""

from fingerpost.servers.library import SignInStore as SignInStore
from fingerpost.servers.library import SignOutResult as SignOutResult
from fingerpost.servers.library import build_user_token_name as build_user_token_name
from fingerpost.servers.library import sign_in as sign_in
from fingerpost.servers.library import sign_in_user as sign_in_user
from fingerpost.servers.library import sign_out as sign_out
from fingerpost.servers.pool import ServerPool as ServerPool
from fingerpost.servers.requests import RequestContext as RequestContext
from fingerpost.servers.spec import Server as Server
