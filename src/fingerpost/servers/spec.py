"""Ways to say which server is meant, for people who write Python instead of a configuration file."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from fingerpost.errors import ConfigError
from fingerpost.records import Era, OAuthSpec, ServerSpec
from fingerpost.records.json import is_large_value
from fingerpost.records.servers import IN_PROCESS, OWN_PROGRAM
from fingerpost.redaction import (
    MASK,
    find_secrets_in_setting,
    is_secret_header,
    is_secret_setting,
    register_secret,
)
from fingerpost.tasks import run_in_thread

MIN_ECHO_LENGTH: Final = 8  # characters; shorter ones are words that answers hold by chance


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
        trust_hints: bool = False,
    ) -> ServerSpec:
        """A program we start. It inherits a few harmless variables (`process.INHERITED`) and `env`.

        With `trust_hints` the `readOnlyHint` of its tools is believed: those run without a question.
        """
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
            trust_hints=trust_hints,
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
        trust_hints: bool = False,
    ) -> ServerSpec:
        """A server at an address, spoken to over streamable HTTP. `trust_hints` as for `stdio`."""
        return ServerSpec(
            name=name,
            transport="http",
            url=url,
            headers=dict(headers or {}),
            oauth=oauth,
            era=era,
            connect_timeout=connect_timeout,
            trust_hints=trust_hints,
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
_YES_FLAGS: Final = frozenset({"-y", "--yes", "-q", "--quiet"})  # options that do not change what is started
_PYTHON = re.compile(r"python[0-9.]*")
_NODE_MODULES_PATH = re.compile(r"[\\/]node_modules[\\/]((?:@[\w.-]+[\\/])?[\w.-]+)[\\/]")
_VERSION_SUFFIX = re.compile(r"(?<=.)(?:@|==)[\w.^~*-]+$")


def get_package(spec: ServerSpec) -> str | None:
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
    program, args = re.split(r"[\\/]", spec.command)[-1].removesuffix(".exe").removesuffix(".cmd"), spec.args
    if _PYTHON.fullmatch(program):
        if args[:1] != ("-m",) or len(args) < 2:
            return None
        program, args = args[1].replace("_", "-"), args[2:]
    if program in _RUNNERS:
        return _find_started_package(args, _RUNNERS[program])
    if program == "node" and args:
        found = _NODE_MODULES_PATH.search(args[0])
        return found[1].replace("\\", "/") if found else None
    if program == "fingerpost" and args[:1] == ("builtin",):
        return OWN_PROGRAM
    return program


def _find_started_package(args: Sequence[str], before: tuple[str, ...]) -> str | None:
    rest = [*args]
    for word in before:
        if not rest or rest.pop(0) != word:
            return None
    while rest and rest[0] in _YES_FLAGS:
        rest.pop(0)
    return None if not rest or rest[0].startswith("-") else _VERSION_SUFFIX.sub("", rest[0])


def register_secrets(spec: ServerSpec) -> None:
    """Have the secrets of this entry masked wherever they might turn up."""
    for secret in (*_collect_secrets(spec), *_collect_echoes(spec)):
        register_secret(secret)


def _collect_secrets(spec: ServerSpec) -> set[str]:
    found: set[str] = set()
    for name, value in spec.env.items():
        if is_secret_setting(name):
            found.update(find_secrets_in_setting(name, value))
    for name, value in spec.headers.items():
        if is_secret_header(name):
            found.update(find_secrets_in_setting(name, value))
            found.update(_decode_basic(value))
    if spec.oauth is not None and spec.oauth.client_secret is not None:
        found.add(spec.oauth.client_secret)
    return found


def _collect_echoes(spec: ServerSpec) -> set[str]:
    """Those long enough to be looked for in what the server says, also as base64."""
    found = {secret for secret in _collect_secrets(spec) if len(secret) >= MIN_ECHO_LENGTH}
    return found | {base64.b64encode(secret.encode()).decode().rstrip("=") for secret in found}


def _decode_basic(value: str) -> tuple[str, ...]:
    """User and password of basic authentication, and the password alone."""
    scheme, _, encoded = value.partition(" ")
    if scheme.lower() != "basic":
        return ()
    try:
        pair = base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return ()
    return pair, pair.partition(":")[2]


class ServerSecrets:
    """What a server was configured with, taken out of everything it says: also where it only echoes it.

    A server that wants to tell its secret can write it in a way that nobody recognises. This is against
    those that repeat a request, or their environment, in an answer or an error.
    """

    def __init__(self, spec: ServerSpec | None) -> None:
        self._texts = () if spec is None else tuple(sorted(_collect_echoes(spec), key=len, reverse=True))

    def __bool__(self) -> bool:
        return bool(self._texts)

    async def mask_async(self, value: Any) -> Any:
        """The same value where it holds none of them."""
        if not self._texts:
            return value
        return await run_in_thread(self.mask, value) if is_large_value(value) else self.mask(value)

    def mask(self, value: Any) -> Any:
        """The same at once, for what is known to be small."""
        if not self._texts:
            return value
        try:
            return self._mask_value(value)
        except RecursionError:  # nested deeper than anything that is carried: it is refused for that
            return value

    def _mask_value(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret in self._texts:
                if secret in value:
                    value = value.replace(secret, MASK)
            return value
        if isinstance(value, dict):
            members = cast("dict[Any, Any]", value)
            made = {self._mask_value(key): self._mask_value(entry) for key, entry in members.items()}
            return members if made == members else made
        if isinstance(value, list):
            items = cast("list[Any]", value)
            masked = [self._mask_value(item) for item in items]
            return items if masked == items else masked
        return value


NO_SECRETS: Final = ServerSecrets(None)
