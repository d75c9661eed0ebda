"""All sources together: defaults < `fingerpost.toml` < environment < arguments.

Servers come from the `[servers.*]` tables of the TOML file and from one
`mcpServers` JSON; an entry of the JSON replaces the whole TOML entry of the
same name. Nothing here looks at the process itself unless it is not told:
the environment and the folder are arguments.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.records import ServerSpec
from fingerpost.settings.checks import flaws
from fingerpost.settings.client_files import Draft, find_entries, no_servers, read_drafts
from fingerpost.settings.document import Document, read_document, table
from fingerpost.settings.environment import SERVERS_FILE, Given, from_environment
from fingerpost.settings.fields import LISTS_OF_TABLES, leaves
from fingerpost.settings.model import ServerSettings, Settings
from fingerpost.settings.problems import DEFAULT, KeyPath, Origin, Problem, as_error, dotted
from fingerpost.settings.profiles import FOLDER, ProfileFiles
from fingerpost.settings.secrets import remember_url
from fingerpost.settings.server_specs import Server, realise, toml_drafts
from fingerpost.settings.sources import Sources, arguments, config_path, is_file
from fingerpost.settings.validate import Whereabouts, validate

# Written by other clients into a project. Never read unasked: entering a folder must not start programs.
PROJECT_FILES = (".mcp.json", "mcp.json")


@frozen
class Loaded:
    """The effective settings, where each came from, and the servers ready to connect."""

    settings: Settings
    origins: Mapping[str, Origin]  # dotted path → where from
    specs: tuple[ServerSpec, ...] = ()
    warnings: tuple[Problem, ...] = ()
    files: tuple[str, ...] = ()  # that were read
    profile_files: ProfileFiles | None = None  # where more profiles are written; they may change meanwhile
    secrets: frozenset[str] = frozenset()  # dotted paths whose value came out of a secret variable


@dataclass(slots=True)
class _Gathered:
    """Everything found, before anybody decides whether it is good enough."""

    settings: Settings | None = None
    origins: dict[str, Origin] = field(default_factory=dict[str, Origin])
    servers: tuple[Server, ...] = ()
    problems: list[Problem] = field(default_factory=list[Problem])
    server_problems: list[Problem] = field(default_factory=list[Problem])
    files: list[str] = field(default_factory=list[str])
    profile_files: ProfileFiles | None = None


def load(
    config: Path | None = None,
    servers: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    *,
    lenient_servers: bool = True,
) -> Loaded:
    """The effective settings. Raises one `ConfigError` with every problem found.

    With `lenient_servers` a server entry that is wrong is left out with a warning,
    so that one bad entry does not keep the others from working.
    """
    gathered = _gather(_sources(config, servers, overrides, environ, cwd))
    found = [*gathered.problems]
    if lenient_servers:
        found += [problem.as_warning() for problem in gathered.server_problems]
    else:
        found += gathered.server_problems
    errors = tuple(problem for problem in found if not problem.warning)
    if errors or gathered.settings is None:
        raise as_error(errors)
    return Loaded(
        settings=gathered.settings,
        origins=gathered.origins,
        specs=tuple(server.spec for server in gathered.servers if server.spec is not None),
        warnings=tuple(found),
        files=tuple(gathered.files),
        profile_files=gathered.profile_files,
        secrets=frozenset[str]().union(*(server.secrets for server in gathered.servers)),
    )


def check(
    config: Path | None = None,
    servers: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> tuple[Problem, ...]:
    """Every problem and warning there is; never raises. In the order one would fix them: by file and line."""
    gathered = _gather(_sources(config, servers, overrides, environ, cwd))
    found = [*gathered.problems, *gathered.server_problems]
    return tuple(sorted(found, key=lambda problem: (problem.file or "", problem.line or 0)))


def _sources(
    config: Path | None,
    servers: Path | None,
    overrides: Mapping[str, object] | None,
    environ: Mapping[str, str] | None,
    cwd: Path | None,
) -> Sources:
    try:
        here = (cwd or Path.cwd()).absolute()
    except FileNotFoundError:
        message = "the current folder does not exist any more"
        raise ConfigError(message, hint="change to another folder") from None
    return Sources(
        config=config,
        servers=servers,
        overrides=overrides or {},
        environ=os.environ if environ is None else environ,
        cwd=here,
    )


def _gather(sources: Sources) -> _Gathered:
    gathered = _Gathered()
    document = _read_config(sources, gathered)
    given, warnings = from_environment(sources.environ)
    stronger, refused = arguments(sources)
    gathered.problems += (*warnings, *refused)
    values, places = _merge(document, (*given, *stronger))
    where = Whereabouts(lambda path: _origin(path, places, document))
    settings, problems = validate(Settings, values, where)
    gathered.problems += problems
    if settings is not None and settings.store.url:
        remember_url(settings.store.url)
    if settings is not None:
        gathered.problems += (where.problem(flaw.path, flaw.message, flaw.fix) for flaw in flaws(settings))
    documents: Mapping[str, Document] = {}
    if settings is not None:
        settings, documents = _with_profiles(sources, settings, where, document, gathered)
    servers_document = _read_servers(sources, values, where.origin(("servers_file",)), document, gathered)
    timeout = (settings or Settings()).limits.connect_timeout
    _take_servers(sources, document, servers_document, timeout, gathered)
    if settings is not None:
        entries = {
            server.draft.name: server.settings for server in gathered.servers if server.settings is not None
        }
        gathered.settings = settings.model_copy(update={"servers": entries})
        gathered.origins = _origins(gathered.settings, where, gathered.servers)
        gathered.origins |= _profile_origins(gathered.settings, where, documents)
    if not gathered.servers and not gathered.server_problems and "servers_file" not in values:
        gathered.problems += _offer_project_file(sources)
    return gathered


def _read_config(sources: Sources, gathered: _Gathered) -> Document | None:
    path = config_path(sources)
    if path is None:
        return None
    document = read_document(path, sources.shown(path), toml=True)
    if isinstance(document, Problem):
        gathered.problems.append(document)
        return None
    gathered.files.append(document.file)
    return document


def _merge(
    document: Document | None, given: tuple[Given, ...]
) -> tuple[dict[str, object], dict[KeyPath, Origin]]:
    """The values of the file with single values laid over them; servers are taken apart elsewhere."""
    values: dict[str, object] = dict(document.values) if document else {}
    values.pop("servers", None)
    places: dict[KeyPath, Origin] = {}
    for one in given:
        values = _with(values, one.path, one.value)
        places[one.path] = one.origin
    return values, places


def _with(values: Mapping[str, object], path: tuple[str, ...], value: object) -> dict[str, object]:
    """`values` with one value laid over them. A section that is no table stays, to be reported as such."""
    name, *rest = path
    if not rest:
        return {**values, name: value}
    inner = table(values.get(name, {}))
    return dict(values) if inner is None else {**values, name: _with(inner, tuple(rest), value)}


def _origin(path: KeyPath, places: Mapping[KeyPath, Origin], document: Document | None) -> Origin:
    for length in range(len(path), 0, -1):
        if path[:length] in places:
            return places[path[:length]]
    return document.origin(path) if document else DEFAULT


def _read_servers(
    sources: Sources,
    values: Mapping[str, object],
    origin: Origin,
    config: Document | None,
    gathered: _Gathered,
) -> Document | None:
    """The mcpServers file, wherever it was named."""
    named = values.get("servers_file")
    if not isinstance(named, str):
        return None
    base = config.folder if config is not None and origin.kind == "file" else sources.cwd
    path = sources.resolve(named, base)
    document = read_document(path, sources.shown(path))
    if isinstance(document, Problem):
        gathered.problems.append(document)
        return None
    gathered.files.append(document.file)
    if not find_entries(document):
        gathered.problems.append(no_servers(document))
    return document


def _with_profiles(
    sources: Sources, settings: Settings, where: Whereabouts, config: Document | None, gathered: _Gathered
) -> tuple[Settings, Mapping[str, Document]]:
    """The settings with the profiles that have files of their own, and those files."""
    named = settings.profiles_folder
    if named is None and config is None:
        return settings, {}
    origin = where.origin(("profiles_folder",))
    base = config.folder if config is not None and (named is None or origin.kind == "file") else sources.cwd
    folder = sources.resolve(named or FOLDER, base)
    found = ProfileFiles(
        folder=folder,
        shown=sources.shown(folder),
        written=settings.profiles,
        places={name: where.origin((FOLDER, name)) for name in settings.profiles},
    )
    reading = found.read()
    gathered.profile_files = found
    gathered.problems += reading.problems
    gathered.files += [document.file for document in reading.documents.values()]
    profiles = {**settings.profiles, **reading.profiles}
    return settings.model_copy(update={"profiles": profiles}), reading.documents


def _take_servers(
    sources: Sources, config: Document | None, servers: Document | None, timeout: float, gathered: _Gathered
) -> None:
    drafts: dict[str, Draft] = {}
    for document, read in ((config, toml_drafts), (servers, read_drafts)):
        if document is not None:
            found, problems = read(document)
            drafts |= {draft.name: draft for draft in found}
            gathered.server_problems += problems
    gathered.servers = tuple(
        realise(draft, sources.environ, sources.home, timeout) for draft in drafts.values()
    )
    for server in gathered.servers:
        gathered.server_problems += server.problems


def _origins(settings: Settings, where: Whereabouts, servers: tuple[Server, ...]) -> dict[str, Origin]:
    """Every effective value's origin, those never written included."""
    origins: dict[str, Origin] = {}
    for leaf in leaves():
        section: object = settings
        for part in leaf.path[:-1]:
            section = getattr(section, part)
        given = leaf.path[-1] in getattr(section, "model_fields_set", ())
        origins[dotted(leaf.path)] = where.origin(leaf.path) if given else DEFAULT
    for listed in LISTS_OF_TABLES:
        for index, entry in enumerate(getattr(settings, listed)):
            for name in sorted(entry.model_fields_set):
                path: KeyPath = (listed, index, name)
                origins[dotted(path)] = where.origin(path)
    for who in settings.plans:
        origins[dotted(("plans", who))] = where.origin(("plans", who))
    for server in servers:
        if server.settings is not None:
            origins |= _server_origins(server, server.settings)
    return origins


def _profile_origins(
    settings: Settings, where: Whereabouts, documents: Mapping[str, Document]
) -> dict[str, Origin]:
    """Where each profile is written: in the settings' own file, or in one of its own."""
    origins: dict[str, Origin] = {}
    for name, profile in settings.profiles.items():
        document = documents.get(name)
        for given in sorted(profile.model_fields_set):
            path: KeyPath = (FOLDER, name, given)
            origins[dotted(path)] = where.origin(path) if document is None else document.origin((given,))
    return origins


def _server_origins(server: Server, settings: ServerSettings) -> Iterator[tuple[str, Origin]]:
    draft = server.draft
    for name in ServerSettings.model_fields:
        path = (*draft.path, draft.renamed.get(name, name))
        given = name in settings.model_fields_set
        yield dotted(("servers", draft.name, name)), draft.document.origin(path) if given else DEFAULT


def _offer_project_file(sources: Sources) -> Iterator[Problem]:
    for name in PROJECT_FILES:
        if is_file(sources.cwd / name):
            yield Problem(
                message=f"no servers are configured, but there is a {name} here",
                fix=f'use it with --servers {name}, {SERVERS_FILE}={name}, or servers_file = "{name}"',
                warning=True,
            )
            return
