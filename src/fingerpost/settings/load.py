"""Loads the settings from all sources (files, environment, arguments) and builds the server specs."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from fingerpost.errors import ConfigError
from fingerpost.frozen import build_repr, frozen
from fingerpost.records import OAuthSpec, ServerSpec, Transport
from fingerpost.settings.client_files import (
    ServerDraft,
    build_draft,
    build_no_servers_problem,
    find_server_tables,
    read_drafts,
    to_text,
)
from fingerpost.settings.document import SettingsDocument, as_table, read_document, read_dotenv, read_text
from fingerpost.settings.model import FileRule, OAuthSettings, ServerSettings, Settings
from fingerpost.settings.problems import DEFAULT_ORIGIN, KeyPath, Problem, ValueOrigin, format_path, to_error
from fingerpost.settings.profiles import FOLDER, ProfileFiles
from fingerpost.settings.sources import (
    LISTS_OF_TABLES,
    SERVERS_FILE_NAME,
    SERVERS_FILE_VARIABLE,
    GivenValue,
    Sources,
    find_config,
    get_default_store_file,
    get_user_folder,
    is_file,
    iterate_fields,
    list_config_files,
    read_arguments,
    read_environment,
)
from fingerpost.settings.validation import (
    LINK_LOCAL_FIX,
    LINK_LOCAL_MESSAGE,
    ValidationContext,
    find_flaws,
    is_link_local,
    is_trustworthy,
    validate,
)
from fingerpost.settings.variables import (
    Expansion,
    TakenVariable,
    VariableScope,
    expand,
    find_literal_secrets,
    register_literal_secrets,
    register_url_secrets,
    register_variable_secrets,
)

# Passed to the spec as they are.
_SPEC_FIELDS = (
    "command", "args", "env", "cwd", "url", "headers", "auth", "era", "enabled", "prefix", "isolate",
    "forward_authorization", "trust_hints", "new_tools", "review_new", "lifecycle", "idle_seconds",
    "keep_running", "allow_link_local",
)  # fmt: skip
_PROGRAM_FIELDS = ("args", "env", "env_file", "cwd")
_ADDRESS_FIELDS = ("headers", "oauth")
# Fields that contain secrets. A command or a folder from a variable is not a secret.
_SECRET_FIELDS = frozenset({"env", "headers", "url", "args", "oauth"})


@frozen(kw_only=False)
class ResolvedServer:
    """The result of one server entry."""

    draft: ServerDraft
    settings: ServerSettings | None = None
    spec: ServerSpec | None = None
    problems: tuple[Problem, ...] = ()
    secrets: frozenset[str] = frozenset()  # dotted paths whose value came from a secret variable


@dataclass(slots=True)
class _ServerEntry:
    """A server entry during processing."""

    draft: ServerDraft
    scope: VariableScope
    problems: list[Problem] = field(default_factory=list[Problem])
    secrets: set[str] = field(default_factory=set[str])

    def get_origin(self, path: KeyPath = ()) -> ValueOrigin:
        renamed = (self.draft.renamed.get(str(path[0]), path[0]), *path[1:]) if path else ()
        return self.draft.document.get_origin((*self.draft.path, *renamed))

    def report(self, message: str, fix: str, path: KeyPath = (), *, warning: bool = False) -> None:
        name = format_path(("servers", self.draft.name, *path))
        problem = Problem(message=message, fix=fix, path=name, origin=self.get_origin(path), warning=warning)
        self.problems.append(problem)


def read_toml_drafts(document: SettingsDocument) -> tuple[tuple[ServerDraft, ...], tuple[Problem, ...]]:
    """Return the `[servers.<name>]` tables of our own file."""
    servers = document.values.get("servers")
    if servers is None:
        return (), ()
    entries = as_table(servers)
    if entries is None:
        return (), (_build_not_tables(document, ("servers",)),)
    drafts: list[ServerDraft] = []
    problems: list[Problem] = []
    for name, entry in entries.items():
        values = as_table(entry)
        if values is None:
            problems.append(_build_not_tables(document, ("servers", name)))
        else:
            drafts.append(ServerDraft(name=name, values=values, document=document, path=("servers", name)))
    return tuple(drafts), tuple(problems)


def resolve_server(
    draft: ServerDraft, environ: Mapping[str, str], home: Path, connect_timeout: float
) -> ResolvedServer:
    """Return the entry as settings and as a spec, or its problems."""
    scope = VariableScope(environ=environ, folder=draft.document.folder, home=home, inputs=draft.inputs)
    entry = _ServerEntry(draft, scope)
    _check_name(entry)
    disabled = draft.values.get("enabled") is False
    expanded = _expand_value(entry, draft.values, (), silent=disabled)
    values = dict(as_table(expanded) or {})
    _merge_env_file(entry, values)
    context = ValidationContext(entry.get_origin, ("servers", draft.name))
    server, wrong = validate(ServerSettings, values, context)
    entry.problems += wrong
    if server is None:
        return ResolvedServer(draft, problems=tuple(entry.problems))
    register_literal_secrets(values)
    entry.secrets |= {format_path(("servers", draft.name, *path)) for path, _ in find_literal_secrets(values)}
    server = server.model_copy(update=_resolve_paths(server, scope))
    transport = _resolve_transport(entry, server)
    if transport is None or any(not problem.warning for problem in entry.problems):
        return ResolvedServer(draft, problems=tuple(entry.problems))
    spec = _build_spec(entry, server, transport, connect_timeout)
    return ResolvedServer(draft, server, spec, tuple(entry.problems), frozenset(entry.secrets))


def _check_name(entry: _ServerEntry) -> None:
    name = entry.draft.name
    if not name.strip():
        entry.report("has an empty name", "give the server a name")
    elif "/" in name:
        entry.report("has a / in its name, which separates server and tool", "write - instead of /")
    elif any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in name):
        entry.report("has a control character in its name", "write the name with visible characters")


def _expand_value(entry: _ServerEntry, value: object, path: KeyPath, *, silent: bool) -> object:
    """Return the value with variables replaced. With `silent` missing variables are not reported."""
    if isinstance(value, str):
        result: Expansion = expand(value, entry.scope)
        if path[0] in _SECRET_FIELDS and register_variable_secrets(str(path[-1]), result.taken):
            entry.secrets.add(format_path(("servers", entry.draft.name, *path)))
        for missing in result.missing if not silent else ():
            entry.report(missing.message, missing.fix, path)
        return result.text
    if (entries := as_table(value)) is not None:
        texts = path in {("env",), ("headers",)}
        return {
            key: _expand_value(entry, to_text(item) if texts else item, (*path, key), silent=silent)
            for key, item in entries.items()
        }
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [_expand_value(entry, item, (*path, i), silent=silent) for i, item in enumerate(items)]
    return value


def _merge_env_file(entry: _ServerEntry, values: dict[str, object]) -> None:
    """Add the variables of `env_file`. Those of `env` override them."""
    file = values.get("env_file")
    env = as_table(values.get("env", {}))
    if not isinstance(file, str) or env is None or values.get("enabled") is False:
        return
    text = read_text(_resolve_path(file, entry.scope), file)
    if isinstance(text, Problem):
        entry.report(f"names {file}, which {text.message}", text.fix, ("env_file",))
        return
    given, bad = read_dotenv(text)
    if bad:
        lines = ", ".join(str(line.line) for line in bad)
        entry.report(f"names {file}, whose line {lines} is not NAME=value", "correct it", ("env_file",))
    for name, value in given.items():
        if register_variable_secrets(name, [TakenVariable(name=name, value=value)]):
            entry.secrets.add(format_path(("servers", entry.draft.name, "env", name)))
    values["env"] = {**given, **env}


def _resolve_paths(server: ServerSettings, scope: VariableScope) -> dict[str, str]:
    """Resolve `~` to the home folder, and a relative `cwd` from the file that contains it."""
    paths: dict[str, str] = {}
    if server.cwd is not None:
        paths["cwd"] = str(_resolve_path(server.cwd, scope))
    if server.command is not None and server.command.startswith("~/"):
        paths["command"] = str(scope.home / server.command[2:])
    return paths


def _resolve_path(path: str, scope: VariableScope) -> Path:
    if path == "~" or path.startswith("~/"):
        return scope.home / path[2:]
    return scope.workspace / path


def _resolve_transport(entry: _ServerEntry, server: ServerSettings) -> Transport | None:
    """Return the transport. Adds a problem if the entry is ambiguous."""
    if server.command and server.url:
        entry.report("has both a command and a url", "keep one of the two", ("url",))
    elif server.command:
        return _resolve_program_transport(entry, server)
    elif server.url:
        return _resolve_url_transport(entry, server)
    else:
        entry.report(
            "has neither a command nor a url", "add a command for a program, or a url for an address"
        )
    return None


def _resolve_program_transport(entry: _ServerEntry, server: ServerSettings) -> Transport | None:
    if server.transport not in {None, "stdio"}:
        message = f'has a command, but its transport "{server.transport}" needs a url'
        entry.report(message, 'use "stdio", or give a url instead of the command', ("transport",))
        return None
    if server.auth in ("per_user", "exchange"):
        message = f"cannot be {server.auth} for a program: only servers at a url get tokens of callers"
        entry.report(message, "give a url instead of the command, or remove it", ("auth",))
        return None
    _report_unused(entry, server, _ADDRESS_FIELDS, "a program")
    return "stdio"


def _resolve_url_transport(entry: _ServerEntry, server: ServerSettings) -> Transport | None:
    assert server.url is not None
    if server.transport == "stdio":
        message = 'has a url, but its transport "stdio" needs a command'
        entry.report(message, 'use "http" or "sse", or give a command instead of the url', ("transport",))
        return None
    if (reason := find_url_fault(server.url)) is not None and server.enabled:
        entry.report(reason, "write it like https://example.org/mcp", ("url",))
        return None
    if is_link_local(urlsplit(server.url).hostname or "") and not server.allow_link_local and server.enabled:
        entry.report(LINK_LOCAL_MESSAGE, LINK_LOCAL_FIX, ("url",))
        return None
    oauth = server.oauth
    own_grant = oauth is not None and oauth.grant == "client_credentials"
    needed = ("client_id", "client_secret", "issuer")
    missing = [name for name in needed if own_grant and not getattr(oauth, name)]
    if missing:
        message = f"needs {' and '.join(missing)} for the grant client_credentials"
        entry.report(message, "add what the authorization server gave you", ("oauth",))
        return None
    if server.auth in ("per_user", "exchange") and (server.forward_authorization or own_grant):
        message = f"cannot be {server.auth} together with forward_authorization or client_credentials"
        entry.report(message, "keep one of them", ("auth",))
        return None
    if server.auth == "exchange" and not _is_exchange_complete(entry, server.oauth):
        return None
    _report_unused(entry, server, _PROGRAM_FIELDS, "an address")
    if server.transport is not None:
        return server.transport
    return "sse" if urlsplit(server.url).path.rstrip("/").endswith("/sse") else "http"


def _is_exchange_complete(entry: _ServerEntry, oauth: OAuthSettings | None) -> bool:
    """Report what is missing to exchange tokens. Return whether nothing is."""
    if oauth is None or not oauth.client_id or not (oauth.issuer or oauth.token_endpoint):
        message = "needs client_id, and issuer or token_endpoint, to exchange tokens"
        entry.report(message, "add what the authorization server gave you", ("oauth",))
        return False
    for name in ("issuer", "token_endpoint"):
        address = getattr(oauth, name)
        if address and not is_trustworthy(address):
            message = "must start with https://, because callers' tokens are sent there"
            entry.report(message, "use the https address", ("oauth", name))
            return False
    return True


def find_url_fault(url: str) -> str | None:
    """Return why a URL cannot be used, or None. The message never contains the URL, which may hold a key."""
    if any(character.isspace() or not character.isprintable() for character in url):
        return "is a url with a space or control character in it"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "is not a valid url"
    if parts.scheme not in {"http", "https"}:
        return "must start with http:// or https://"
    return None if parts.hostname else "is a url without a host"


def _report_unused(entry: _ServerEntry, server: ServerSettings, names: tuple[str, ...], what: str) -> None:
    for name in names:
        if getattr(server, name):
            entry.report(f"has no effect for {what}", "remove it", (name,), warning=True)


def _build_spec(
    entry: _ServerEntry, server: ServerSettings, transport: Transport, connect_timeout: float
) -> ServerSpec:
    return ServerSpec(
        name=entry.draft.name,
        transport=transport,
        oauth=None if server.oauth is None else OAuthSpec(**dict(server.oauth)),
        connect_timeout=server.connect_timeout or connect_timeout,
        origin=str(entry.get_origin()),
        **{name: getattr(server, name) for name in _SPEC_FIELDS},
    )


def _build_not_tables(document: SettingsDocument, path: KeyPath) -> Problem:
    return Problem(
        message="must be a table for each server",
        fix='write [servers.name] and below it command = "…" or url = "…"',
        path=format_path(path),
        origin=document.get_origin(path),
    )


# Written by other clients into a project. Not read automatically: entering a folder must not start programs.
PROJECT_FILES = (".mcp.json", "mcp.json")


@frozen
class Loaded:
    """The effective settings with their origins, and the servers ready to connect."""

    settings: Settings
    origins: Mapping[str, ValueOrigin]  # dotted path → origin
    specs: tuple[ServerSpec, ...] = ()
    warnings: tuple[Problem, ...] = ()
    files: tuple[str, ...] = ()  # files that were read
    profile_files: ProfileFiles | None = None  # folder of further profiles, which may change at run time
    secrets: frozenset[str] = frozenset()  # dotted paths whose value came from a secret variable
    invalid_servers: frozenset[str] = frozenset()  # names of entries that were left out
    places: SettingsPlaces | None = None  # None: not read from files

    __repr__ = build_repr("files", "specs#", "warnings#")


FileStamp = tuple[int, int, int]  # time, size and inode; zeros if there is no file


@frozen
class SettingsPlaces:
    """Where settings are read from, to read them again and to add servers."""

    sources: Sources = field(repr=False)
    config: Path | None  # the settings file in use
    servers: Path  # the servers file in use; it may not exist yet
    servers_origin: ValueOrigin  # what names the servers file; by default nothing: the user's own file

    @property
    def is_default_servers_file(self) -> bool:
        return self.servers_origin.kind == "default"

    @property
    def new_config(self) -> Path:
        """The settings file in use, or where to create one for all folders."""
        return self.config or list_config_files(self.sources)[-1]

    def shorten(self, path: Path) -> str:
        """Return a path as the user would write it."""
        return self.sources.shorten(path)

    def get_stamps(self) -> tuple[tuple[str, FileStamp], ...]:
        """Return a value that changes when a file changes, or when another one is to be used."""
        paths = (*list_config_files(self.sources), self.servers)
        return tuple((str(path), _get_stamp(path)) for path in paths)

    def read(self) -> Loaded:
        """Read the settings again. Raises `ConfigError`."""
        return _load(self.sources, lenient_servers=True)

    def resolve_entry(
        self, name: str, entry: Mapping[str, object], connect_timeout: float
    ) -> tuple[ResolvedServer, tuple[Problem, ...]]:
        """Return what an entry of the servers file would be, and all its problems. Nothing is written."""
        document = SettingsDocument(
            file=self.shorten(self.servers),
            folder=self.servers.parent,
            values={"mcpServers": {name: dict(entry)}},
            lines={},
        )
        drafts, problems = read_drafts(document)
        draft = drafts[0] if drafts else build_draft(name, entry, document, ("mcpServers", name), {})
        server = resolve_server(draft, self.sources.environ, self.sources.home, connect_timeout)
        return server, (*problems, *server.problems)


def _get_stamp(path: Path) -> FileStamp:
    try:
        seen = path.stat()
    except OSError:
        return 0, 0, 0
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


@dataclass(slots=True)
class _GatheredSettings:
    """Everything found, before problems are evaluated."""

    settings: Settings | None = None
    origins: dict[str, ValueOrigin] = field(default_factory=dict[str, ValueOrigin])
    servers: tuple[ResolvedServer, ...] = ()
    problems: list[Problem] = field(default_factory=list[Problem])
    server_problems: list[Problem] = field(default_factory=list[Problem])
    files: list[str] = field(default_factory=list[str])
    profile_files: ProfileFiles | None = None
    places: SettingsPlaces | None = None


def load(
    config: Path | None = None,
    servers: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    *,
    lenient_servers: bool = True,
) -> Loaded:
    """Return the effective settings. Raises one `ConfigError` with all problems found.

    With `lenient_servers` an invalid server entry is left out with a warning, so that the other servers work.
    """
    return _load(_build_sources(config, servers, overrides, environ, cwd), lenient_servers=lenient_servers)


def _load(sources: Sources, *, lenient_servers: bool) -> Loaded:
    gathered = _gather(sources)
    of_servers = gathered.server_problems
    found = [*gathered.problems, *(one.as_warning() if lenient_servers else one for one in of_servers)]
    errors = tuple(problem for problem in found if not problem.warning)
    if errors or gathered.settings is None:
        raise to_error(errors)
    return Loaded(
        settings=_add_default_store(gathered.settings),
        origins=gathered.origins,
        specs=tuple(server.spec for server in gathered.servers if server.spec is not None),
        warnings=tuple(found),
        files=tuple(gathered.files),
        profile_files=gathered.profile_files,
        secrets=frozenset[str]().union(*(server.secrets for server in gathered.servers)),
        invalid_servers=frozenset(server.draft.name for server in gathered.servers if server.spec is None),
        places=gathered.places,
    )


def _add_default_store(settings: Settings) -> Settings:
    """Return the settings with the store of the commands if they name none. A `Router` whose settings have no
    store keeps everything in memory.
    """
    if settings.store.url is not None:
        return settings
    url = f"sqlite:///{get_default_store_file()}"
    return settings.model_copy(update={"store": settings.store.model_copy(update={"url": url})})


def check(
    config: Path | None = None,
    servers: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> tuple[Problem, ...]:
    """Return all problems and warnings, sorted by file and line. Never raises."""
    gathered = _gather(_build_sources(config, servers, overrides, environ, cwd))
    found = [*gathered.problems, *gathered.server_problems]
    return tuple(sorted(found, key=lambda problem: (problem.file or "", problem.line or 0)))


def _build_sources(
    config: Path | None,
    servers: Path | None,
    overrides: Mapping[str, object] | None,
    environ: Mapping[str, str] | None,
    cwd: Path | None,
) -> Sources:
    try:
        current_folder = (cwd or Path.cwd()).absolute()
    except FileNotFoundError:
        message = "the current folder does not exist"
        raise ConfigError(message, hint="change to another folder") from None
    return Sources(
        config=config,
        servers=servers,
        overrides=overrides or {},
        environ=os.environ if environ is None else environ,
        cwd=current_folder,
    )


def _gather(sources: Sources) -> _GatheredSettings:
    gathered = _GatheredSettings()
    document = _read_config(sources, gathered)
    given, warnings = read_environment(sources.environ)
    stronger, refused = read_arguments(sources)
    gathered.problems += (*warnings, *refused)
    values, given_origins = _merge(document, (*given, *stronger))
    context = ValidationContext(lambda path: _get_origin(path, given_origins, document))
    settings, problems = validate(Settings, values, context)
    gathered.problems += problems
    if settings is not None and settings.store.url:
        register_url_secrets(settings.store.url)
    documents: Mapping[str, SettingsDocument] = {}
    if settings is not None:
        flaws = find_flaws(settings)
        gathered.problems += (context.build_problem(flaw.path, flaw.message, flaw.fix) for flaw in flaws)
        settings = _name_sources_of_rules(settings, context)
        settings, documents = _add_profiles(sources, settings, context, document, gathered)
    places = _find_places(sources, values, context.origin(("servers_file",)), document)
    gathered.places = places
    servers_document = _read_servers(places, gathered)
    timeout = (settings or Settings()).limits.connect_timeout
    _add_servers(places, document, servers_document, timeout, gathered)
    if settings is not None:
        entries = {
            server.draft.name: server.settings for server in gathered.servers if server.settings is not None
        }
        gathered.settings = settings.model_copy(update={"servers": entries})
        gathered.origins = _collect_origins(gathered.settings, context, gathered.servers)
        gathered.origins |= _collect_profile_origins(gathered.settings, context, documents)
    if not gathered.servers and not gathered.server_problems and "servers_file" not in values:
        gathered.problems += _suggest_project_file(sources)
    return gathered


def _name_sources_of_rules(settings: Settings, context: ValidationContext) -> Settings:
    """Return the settings with rules that know where they were written."""
    origin = context.origin(("policy",))
    source = origin.file or origin.name or "the settings"
    rules = [FileRule.model_validate({**rule.model_dump(), "source": source}) for rule in settings.policy]
    return settings.model_copy(update={"policy": tuple(rules)})


def _read_config(sources: Sources, gathered: _GatheredSettings) -> SettingsDocument | None:
    path = find_config(sources)
    if path is None:
        return None
    document = read_document(path, sources.shorten(path), toml=True)
    if isinstance(document, Problem):
        gathered.problems.append(document)
        return None
    gathered.files.append(document.file)
    return document


def _merge(
    document: SettingsDocument | None, given: tuple[GivenValue, ...]
) -> tuple[dict[str, object], dict[KeyPath, ValueOrigin]]:
    """Return the file's values overridden by single values. Servers are handled separately."""
    values: dict[str, object] = dict(document.values) if document else {}
    values.pop("servers", None)
    origins: dict[KeyPath, ValueOrigin] = {}
    for one in given:
        values = _set_value(values, one.path, one.value)
        origins[one.path] = one.origin
    return values, origins


def _set_value(values: Mapping[str, object], path: tuple[str, ...], value: object) -> dict[str, object]:
    """Return `values` with one value replaced. A section that is no table is kept, to be reported."""
    name, *rest = path
    if not rest:
        return {**values, name: value}
    inner = as_table(values.get(name, {}))
    return dict(values) if inner is None else {**values, name: _set_value(inner, tuple(rest), value)}


def _get_origin(
    path: KeyPath, origins: Mapping[KeyPath, ValueOrigin], document: SettingsDocument | None
) -> ValueOrigin:
    for length in range(len(path), 0, -1):
        if path[:length] in origins:
            return origins[path[:length]]
    return document.get_origin(path) if document else DEFAULT_ORIGIN


def _find_places(
    sources: Sources, values: Mapping[str, object], origin: ValueOrigin, config: SettingsDocument | None
) -> SettingsPlaces:
    """Return which files are used. A servers file that is named anywhere replaces the user's own."""
    named = values.get("servers_file")
    if isinstance(named, str):
        base = config.folder if config is not None and origin.kind == "file" else sources.cwd
        servers = sources.resolve(named, base)
    else:
        servers, origin = get_user_folder(sources) / SERVERS_FILE_NAME, DEFAULT_ORIGIN
    return SettingsPlaces(
        sources=sources, config=find_config(sources), servers=servers, servers_origin=origin
    )


def _read_servers(places: SettingsPlaces, gathered: _GatheredSettings) -> SettingsDocument | None:
    """Read the mcpServers file, if there is one. Only one that is named must exist and have servers."""
    path = places.servers
    if places.is_default_servers_file and not is_file(path):
        return None
    document = read_document(path, places.shorten(path))
    if isinstance(document, Problem):
        gathered.problems.append(document)
        return None
    gathered.files.append(document.file)
    has_nothing = places.is_default_servers_file and not document.values
    if not has_nothing and not find_server_tables(document):
        gathered.problems.append(build_no_servers_problem(document))
    return document


def _add_profiles(
    sources: Sources,
    settings: Settings,
    context: ValidationContext,
    config: SettingsDocument | None,
    gathered: _GatheredSettings,
) -> tuple[Settings, Mapping[str, SettingsDocument]]:
    """Return the settings with the profiles from separate files, and those files."""
    named = settings.profiles_folder
    if named is None and config is None:
        return settings, {}
    origin = context.origin(("profiles_folder",))
    base = config.folder if config is not None and (named is None or origin.kind == "file") else sources.cwd
    folder = sources.resolve(named or FOLDER, base)
    found = ProfileFiles(
        folder=folder,
        shown=sources.shorten(folder),
        written=settings.profiles,
        origins={name: context.origin((FOLDER, name)) for name in settings.profiles},
    )
    reading = found.read()
    gathered.profile_files = found
    gathered.problems += reading.problems
    gathered.files += [document.file for document in reading.documents.values()]
    profiles = {**settings.profiles, **reading.profiles}
    return settings.model_copy(update={"profiles": profiles}), reading.documents


def _add_servers(
    places: SettingsPlaces,
    config: SettingsDocument | None,
    servers: SettingsDocument | None,
    timeout: float,
    gathered: _GatheredSettings,
) -> None:
    """Add the servers of both files. Of two with one name, that of a named servers file is used; one in the
    settings file replaces that of the user's own servers file.
    """
    sources = places.sources
    drafts: dict[str, ServerDraft] = {}
    readers = [(config, read_toml_drafts), (servers, read_drafts)]
    for document, read in reversed(readers) if places.is_default_servers_file else readers:
        if document is not None:
            found, problems = read(document)
            drafts |= {draft.name: draft for draft in found}
            gathered.server_problems += problems
    gathered.servers = tuple(
        resolve_server(draft, sources.environ, sources.home, timeout) for draft in drafts.values()
    )
    for server in gathered.servers:
        gathered.server_problems += server.problems


def _collect_origins(
    settings: Settings, context: ValidationContext, servers: tuple[ResolvedServer, ...]
) -> dict[str, ValueOrigin]:
    """Return the origin of every effective value, including defaults."""
    origins: dict[str, ValueOrigin] = {}
    for leaf in iterate_fields():
        section: object = settings
        for part in leaf.path[:-1]:
            section = getattr(section, part)
        given = leaf.path[-1] in getattr(section, "model_fields_set", ())
        origins[format_path(leaf.path)] = context.origin(leaf.path) if given else DEFAULT_ORIGIN
    for listed in LISTS_OF_TABLES:
        for index, entry in enumerate(getattr(settings, listed)):
            for name in sorted(entry.model_fields_set):
                path: KeyPath = (listed, index, name)
                origins[format_path(path)] = context.origin(path)
    for who in settings.plans:
        origins[format_path(("plans", who))] = context.origin(("plans", who))
    for server in servers:
        if server.settings is not None:
            origins |= _iterate_server_origins(server, server.settings)
    return origins


def _collect_profile_origins(
    settings: Settings, context: ValidationContext, documents: Mapping[str, SettingsDocument]
) -> dict[str, ValueOrigin]:
    """Return where each profile is written: in the settings file or in its own file."""
    origins: dict[str, ValueOrigin] = {}
    for name, profile in settings.profiles.items():
        document = documents.get(name)
        for given in sorted(profile.model_fields_set):
            path: KeyPath = (FOLDER, name, given)
            origins[format_path(path)] = (
                context.origin(path) if document is None else document.get_origin((given,))
            )
    return origins


def _iterate_server_origins(
    server: ResolvedServer, settings: ServerSettings
) -> Iterator[tuple[str, ValueOrigin]]:
    draft = server.draft
    for name in ServerSettings.model_fields:
        path = (*draft.path, draft.renamed.get(name, name))
        given = name in settings.model_fields_set
        yield (
            format_path(("servers", draft.name, name)),
            draft.document.get_origin(path) if given else DEFAULT_ORIGIN,
        )


def _suggest_project_file(sources: Sources) -> Iterator[Problem]:
    for name in PROJECT_FILES:
        if is_file(sources.cwd / name):
            yield Problem(
                message=f"no servers are configured, but there is a {name} here",
                fix=f"use it with --servers {name}, {SERVERS_FILE_VARIABLE}={name}, "
                f'or servers_file = "{name}"',
                warning=True,
            )
            return
