"""Ways to say which server is meant, for people who write Python instead of a configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from fingerpost.errors import ConfigError
from fingerpost.records import Era, OAuthSpec, ServerSpec
from fingerpost.redaction import holds_secret_header, names_secret_setting, remember, remember_setting


class Server:
    """Makes `ServerSpec` records: `Server.stdio("time", ["mcp-server-time"])`."""

    @staticmethod
    def stdio(
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        era: Era = "auto",
        connect_timeout: float = 30.0,
    ) -> ServerSpec:
        """A program we start. It inherits a few harmless variables (`process.INHERITED`) and `env`."""
        if isinstance(command, str) or not command:
            message = f"the command of server {name!r} is a list of the program and its arguments"
            raise ConfigError(message, hint=f'write Server.stdio({name!r}, ["program", "argument"])')
        return ServerSpec(
            name=name,
            transport="stdio",
            command=command[0],
            args=tuple(command[1:]),
            env=dict(env or {}),
            cwd=None if cwd is None else str(cwd),
            era=era,
            connect_timeout=connect_timeout,
        )

    @staticmethod
    def http(
        name: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        oauth: OAuthSpec | None = None,
        era: Era = "auto",
        connect_timeout: float = 30.0,
    ) -> ServerSpec:
        """A server at an address, spoken to over streamable HTTP."""
        return ServerSpec(
            name=name,
            transport="http",
            url=url,
            headers=dict(headers or {}),
            oauth=oauth,
            era=era,
            connect_timeout=connect_timeout,
        )

    @staticmethod
    def sse(
        name: str, url: str, *, headers: Mapping[str, str] | None = None, connect_timeout: float = 30.0
    ) -> ServerSpec:
        """A server at an address that only speaks the HTTP+SSE transport of 2024."""
        return ServerSpec(
            name=name,
            transport="sse",
            url=url,
            headers=dict(headers or {}),
            era="2025-11-25",
            connect_timeout=connect_timeout,
        )

    @staticmethod
    def in_process(
        name: str, server: object, *, era: Era = "auto", connect_timeout: float = 30.0
    ) -> ServerSpec:
        """An MCP server object of the caller's, spoken to without any transport."""
        return ServerSpec(
            name=name, transport="in_process", in_process=server, era=era, connect_timeout=connect_timeout
        )


_RUNNERS: Final[Mapping[str, tuple[str, ...]]] = {  # programs that start a package, and what comes before it
    "npx": (),
    "bunx": (),
    "uvx": (),
    "pnpm": ("dlx",),
    "yarn": ("dlx",),
    "pipx": ("run",),
    "uv": ("tool", "run"),
}
_AGREEING: Final = frozenset({"-y", "--yes", "-q", "--quiet"})  # options that do not change what is started
_PYTHON = re.compile(r"python[0-9.]*")
_IN_MODULES = re.compile(r"[\\/]node_modules[\\/]((?:@[\w.-]+[\\/])?[\w.-]+)[\\/]")
_VERSION = re.compile(r"(?<=.)(?:@|==)[\w.^~*-]+$")
IN_PROCESS: Final = "in-process"


def package_of(spec: ServerSpec) -> str | None:
    """What this entry starts or names: the package of a program, an address over TLS. None: not to be told.

    It is read off the operator's own entry, never off what a server says of itself. An option that
    may start something else (`--from`, `--package`, `-c`) leaves it untold.
    """
    if spec.in_process is not None:
        return IN_PROCESS
    if spec.url is not None:
        address = urlsplit(spec.url)
        return f"https://{address.netloc}{address.path.rstrip('/')}" if address.scheme == "https" else None
    if spec.command is None:
        return None
    program = re.split(r"[\\/]", spec.command)[-1].removesuffix(".exe").removesuffix(".cmd")
    if program in _RUNNERS:
        return _started(spec.args, _RUNNERS[program])
    if program == "node" and spec.args:
        found = _IN_MODULES.search(spec.args[0])
        return found[1].replace("\\", "/") if found else None
    if _PYTHON.fullmatch(program):
        return spec.args[1].replace("_", "-") if spec.args[:1] == ("-m",) and len(spec.args) > 1 else None
    return program


def _started(args: Sequence[str], before: tuple[str, ...]) -> str | None:
    rest = [*args]
    for word in before:
        if not rest or rest.pop(0) != word:
            return None
    while rest and rest[0] in _AGREEING:
        rest.pop(0)
    return None if not rest or rest[0].startswith("-") else _VERSION.sub("", rest[0])


def protect(spec: ServerSpec) -> None:
    """Have the secrets of this entry masked wherever they might turn up."""
    for name, value in spec.env.items():
        if names_secret_setting(name):
            remember_setting(name, value)
    for name, value in spec.headers.items():
        if holds_secret_header(name):
            remember_setting(name, value)
    if spec.oauth is not None and spec.oauth.client_secret is not None:
        remember(spec.oauth.client_secret)
