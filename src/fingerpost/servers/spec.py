"""Server entries written in Python: programs, URLs, server objects and functions."""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast, get_args
from urllib.parse import urlsplit

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model
from pydantic_core import to_jsonable_python

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.records import (
    Effect,
    Era,
    JsonObject,
    KnownPath,
    Lifecycle,
    OAuthSpec,
    ServerPaths,
    ServerSpec,
)
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

MIN_ECHO_LENGTH: Final = 8  # characters; shorter values appear in text by chance


class Server:
    """Factory of `ServerSpec` records: `Server.stdio("time", ["mcp-server-time"])`."""

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
        lifecycle: Lifecycle | None = None,
    ) -> ServerSpec:
        """Return a server that is started as a program. It inherits the variables in
        `process.INHERITED_VARIABLES` and gets `env`.

        With `trust_hints` the `readOnlyHint` of its tools is trusted: such tools run without approval.
        `lifecycle` says when it runs; the default is that of the settings, `on_demand`.
        """
        if isinstance(command, str) or not command:
            message = f"the command of server {name!r} is a list of the program and its arguments"
            raise ConfigError(message, hint=f'write Server.stdio({name!r}, ["program", "argument"])')
        _check_entry(name, era, connect_timeout, lifecycle, env)
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
            lifecycle=lifecycle,
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
        """Return a server at a URL that uses streamable HTTP. `trust_hints` works as for `stdio`."""
        _check_url(name, url)
        _check_entry(name, era, connect_timeout, variables=headers)
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
        """Return a server at a URL that supports only the HTTP+SSE transport of 2024."""
        _check_url(name, url)
        _check_entry(name, "auto", connect_timeout, variables=headers)
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
        """Return an MCP server object in this process, used without a transport."""
        _check_entry(name, era, connect_timeout)
        return ServerSpec(
            name=name, transport="in_process", in_process=server, era=era, connect_timeout=connect_timeout
        )


def _check_entry(
    name: str,
    era: object,
    connect_timeout: object,
    lifecycle: object = None,
    variables: Mapping[Any, object] | None = None,
) -> None:
    """Raise `ConfigError` for a value of an entry that is of another kind."""
    choices = (("era", era, get_args(Era)), ("lifecycle", lifecycle, (None, *get_args(Lifecycle))))
    for option, value, known in choices:
        if value not in known:
            message = f"server {name!r} cannot have {option}={value!r:.60}"
            raise ConfigError(message, hint=f"It is one of {', '.join(filter(None, known))}.")
    if isinstance(connect_timeout, bool) or not isinstance(connect_timeout, int | float):
        message = f"connect_timeout of server {name!r} is a number of seconds, not {connect_timeout!r:.60}"
        raise ConfigError(message, hint="Write connect_timeout=30.")
    for key, value in (variables or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            message = f"{key!r:.60} of server {name!r} is text, not a {type(value).__name__}"
            raise ConfigError(message, hint="Names and values of env and headers are texts.")


def _check_url(name: str, url: str) -> None:
    if not re.match(r"https?://[^/]", url):
        message = f"the address of server {name!r} is not a URL"
        raise ConfigError(message, hint=f'write Server.http({name!r}, "https://host/path")')


_RUNNERS: Final[
    Mapping[str, tuple[str, ...]]
] = {  # programs that start a package, with the subcommand before the package name
    "npx": (),
    "bunx": (),
    "uvx": (),
    "pnpm": ("dlx",),
    "yarn": ("dlx",),
    "pipx": ("run",),
    "uv": ("tool", "run"),
}
# Options that do not change which program is started.
_HARMLESS_FLAGS: Final = frozenset({"-y", "--yes", "-q", "--quiet"})
_PYTHON = re.compile(r"python[0-9.]*")
_NODE_MODULES_PATH = re.compile(r"[\\/]node_modules[\\/]((?:@[\w.-]+[\\/])?[\w.-]+)[\\/]")
_VERSION_SUFFIX = re.compile(r"(?<=.)(?:@|==)[\w.^~*-]+$")


def fingerprint_entry(spec: ServerSpec) -> str:
    """Return a hash of what decides which server an entry leads to: program, arguments, names of variables,
    folder and URL. Values of variables and headers do not count. The working directory counts if the entry
    seems to name something in it. Do not call it on the event loop.
    """
    is_local = spec.cwd is None and any(map(_may_be_relative_path, (spec.command or "", *spec.args)))
    parts = (
        spec.transport,
        spec.command,
        spec.args,
        sorted(spec.env),
        str(Path.cwd()) if is_local else spec.cwd,
        spec.url,
        sorted(spec.headers),
        spec.era,
    )
    return hashlib.sha256(json.dumps(parts).encode(errors="surrogatepass")).hexdigest()


def _may_be_relative_path(text: str) -> bool:
    """Return whether a word of a command may be a path below the working directory."""
    word = text.rpartition("=")[2]
    if word.startswith(("/", "@", "~")) or "://" in word:
        return False
    return word in (".", "..") or "/" in word or word.endswith((".py", ".js", ".mjs", ".ts", ".sh"))


# Options that say where a runner finds the program, and runners whose paths are of another machine.
_RUNNER_DIRECTORIES: Final = frozenset({"--directory", "--project", "--prefix", "--cwd", "-C", "--from"})
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl", "ssh", "wsl"})


def find_server_paths(spec: ServerSpec) -> ServerPaths:
    """Return the directories and repositories that a local program was given: those in its arguments, and
    the repository of its working directory if they hold none. Do not call it on the event loop.
    """
    program = Path(spec.command or "").name
    if spec.transport != "stdio" or program in _CONTAINERS:
        return ServerPaths()
    start = Path(spec.cwd or ".").absolute()
    directories = tuple(dict.fromkeys(_find_directories(spec.args, start)))
    source = f"an argument of the server {spec.name}"
    repositories = [path for path in directories if (path / ".git").exists()]
    named = tuple(KnownPath(path=str(path), source=source) for path in repositories)
    if not named:
        above = next((path for path in (start, *start.parents) if (path / ".git").exists()), None)
        source_above = f"the repository that the server {spec.name} runs in"
        named = () if above is None else (KnownPath(path=str(above), source=source_above),)
    return ServerPaths(
        directories=tuple(KnownPath(path=str(path), source=source) for path in directories),
        repositories=named,
    )


def _find_directories(args: Sequence[str], start: Path) -> Iterator[Path]:
    for before, word in zip(("", *args), args, strict=False):
        option, _, value = word.partition("=") if word.startswith("-") else (before, "", word)
        if option in _RUNNER_DIRECTORIES or not ("/" in value or value in (".", "..")):
            continue
        path = Path(os.path.normpath(start / Path(value).expanduser()))
        if path.is_dir():
            yield path


def get_package(spec: ServerSpec) -> str | None:
    """Return the package that this entry starts, or its https URL. Return None if that is not certain.

    The value comes from the operator's entry, never from the server. Options that may start another program
    (`--from`, `--package`, `-c`) return None.
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
    while rest and rest[0] in _HARMLESS_FLAGS:
        rest.pop(0)
    return None if not rest or rest[0].startswith("-") else _VERSION_SUFFIX.sub("", rest[0])


def register_secrets(spec: ServerSpec) -> None:
    """Register the secrets of this entry for redaction."""
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
    """Return the secrets that are long enough to search for in the server's output, also as base64."""
    found = {secret for secret in _collect_secrets(spec) if len(secret) >= MIN_ECHO_LENGTH}
    return found | {base64.b64encode(secret.encode()).decode().rstrip("=") for secret in found}


def _decode_basic(value: str) -> tuple[str, ...]:
    """Return user and password of basic authentication, and the password alone."""
    scheme, _, encoded = value.partition(" ")
    if scheme.lower() != "basic":
        return ()
    try:
        pair = base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return ()
    return pair, pair.partition(":")[2]


class ServerSecrets:
    """Removes a server's configured secrets from everything it sends.

    This protects against servers that repeat a request or their environment in a response. It cannot protect
    against a server that encodes its secrets on purpose.
    """

    def __init__(self, spec: ServerSpec | None) -> None:
        self._texts = () if spec is None else tuple(sorted(_collect_echoes(spec), key=len, reverse=True))

    def __bool__(self) -> bool:
        return bool(self._texts)

    async def mask_async(self, value: Any) -> Any:
        """Return the value with secrets replaced, or the same object if it contains none."""
        if not self._texts:
            return value
        return await run_in_thread(self.mask, value) if is_large_value(value) else self.mask(value)

    def mask(self, value: Any) -> Any:
        """Like `mask_async`, but synchronous. Use it for small values only."""
        if not self._texts:
            return value
        try:
            return self._mask_value(value)
        except RecursionError:  # nested too deeply; such a value is refused elsewhere
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


logger = logging.getLogger("fingerpost.servers")

_EFFECT_ANNOTATIONS: Final[Mapping[Effect, Mapping[str, bool]]] = {
    Effect.READ: {"readOnlyHint": True},
    Effect.WRITE: {"readOnlyHint": False, "destructiveHint": False},
    Effect.DESTROY: {"readOnlyHint": False, "destructiveHint": True},
}
_FUNCTION_HINT: Final = "Give a function, `async def` or `def`, whose parameters have names and types."


@frozen
class FunctionTool:
    """A function with a model of its arguments and its tool definition."""

    function: Callable[..., Any]
    arguments: type[BaseModel]
    definition: JsonObject

    async def run(self, arguments: Mapping[str, Any]) -> object:
        """Call the function with arguments converted to its types; a synchronous one in a thread."""
        read = self.arguments.model_validate(arguments)
        values = {name: getattr(read, name) for name in read.model_fields_set}
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**values)
        made = await anyio.to_thread.run_sync(partial(self.function, **values), abandon_on_cancel=True)
        return await made if inspect.isawaitable(made) else made

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        effect: Effect | str | None = None,
    ) -> FunctionTool:
        """Build a tool from a function.

        Name, description and parameters come from the function unless given.
        """
        if not callable(function):
            message = f"{str(function)[:80]} is not a function: nothing could be called"
            raise ConfigError(message, hint=_FUNCTION_HINT)
        name = name or getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            message = "the function has no name: give name=…"
            raise ConfigError(message, hint='Write register(function, name="…").')
        arguments = _build_arguments_model(function, name)
        definition: dict[str, Any] = {
            "name": name,
            "description": description or inspect.getdoc(function) or "",
            "inputSchema": {
                key: value for key, value in arguments.model_json_schema().items() if key != "title"
            },
        }
        if effect is not None:
            if effect not in tuple(Effect):
                message = f"there is no effect {effect!r:.60}"
                raise ConfigError(message, hint=f"The effects are {', '.join(Effect)}.")
            definition["annotations"] = dict(_EFFECT_ANNOTATIONS[Effect(effect)])
        return cls(function=function, arguments=arguments, definition=definition)


@frozen
class FunctionResult:
    """What a function returned, as text and, if it is an object, as data."""

    text: str
    data: dict[str, Any] | None = None
    failed: bool = False


class FunctionServer:
    """The functions registered under one server name. A connection makes an MCP server of them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tools: dict[str, FunctionTool] = {}

    def build_spec(self) -> ServerSpec:
        return ServerSpec(name=self.name, transport="in_process", in_process=self)

    def add(self, tool: FunctionTool) -> str:
        """Add a tool, replacing one with the same name. Return its key."""
        name = str(tool.definition["name"])
        self.tools[name] = tool
        return f"{self.name}/{name}"

    def remove(self, name: str) -> bool:
        """Remove a tool. Return whether it existed."""
        return self.tools.pop(name, None) is not None

    def get_input_schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self.tools.get(name)
        return None if tool is None else cast("Mapping[str, Any]", tool.definition["inputSchema"])

    async def call(self, name: str, arguments: Mapping[str, Any]) -> FunctionResult:
        """Run a function. Its errors are results."""
        tool = self.tools.get(name)
        if tool is None:
            return FunctionResult(text=f"No function is registered as {name!r:.100}.", failed=True)
        try:
            given = to_jsonable_python(await tool.run(arguments))
        except ValidationError as wrong:
            return FunctionResult(text=f"The arguments do not fit: {wrong.errors()[0]['msg']}", failed=True)
        except Exception as error:  # the error of a user function is its result
            logger.exception("%s/%s failed", self.name, name)
            return FunctionResult(text=f"{name} failed: {error or type(error).__name__}", failed=True)
        text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        return FunctionResult(
            text=text, data=cast("dict[str, Any]", given) if isinstance(given, dict) else None
        )


def _build_arguments_model(function: Callable[..., Any], name: str) -> type[BaseModel]:
    """Build a model of the parameters. Parameters without a default are required."""
    fields: dict[str, Any] = {}
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (NameError, TypeError, ValueError) as error:
        raise ConfigError(f"the parameters of {name} cannot be read: {error}", hint=_FUNCTION_HINT) from error
    for parameter in parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"{name} takes {parameter}, which a model cannot fill in", hint=_FUNCTION_HINT)
        kind = Any if parameter.annotation is parameter.empty else parameter.annotation
        fields[parameter.name] = (kind, ... if parameter.default is parameter.empty else parameter.default)
    try:
        made = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        made.model_json_schema()
    except (PydanticUserError, TypeError, ValueError) as error:
        message = f"the parameters of {name} have no JSON schema: {str(error).splitlines()[0]}"
        raise ConfigError(message, hint=_FUNCTION_HINT) from error
    return made
