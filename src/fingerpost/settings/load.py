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
from fingerpost.settings.checks import find_flaws
from fingerpost.settings.client_files import ServerDraft, build_no_servers_problem, find_entries, read_drafts
from fingerpost.settings.document import SettingsDocument, as_table, read_document
from fingerpost.settings.environment import SERVERS_FILE, GivenValue, read_environment
from fingerpost.settings.fields import LISTS_OF_TABLES, iterate_fields
from fingerpost.settings.model import ServerSettings, Settings
from fingerpost.settings.problems import DEFAULT_ORIGIN, KeyPath, Problem, ValueOrigin, format_path, to_error
from fingerpost.settings.profiles import FOLDER, ProfileFiles
from fingerpost.settings.secrets import remember_url
from fingerpost.settings.server_specs import ResolvedServer, read_toml_drafts, resolve_server
from fingerpost.settings.sources import Sources, find_config, is_file, read_arguments
from fingerpost.settings.validate import ValidationContext, validate

# Written by other clients into a project. Never read unasked: entering a folder must not start programs.
PROJECT_FILES = (".mcp.json", "mcp.json")


@frozen
class Loaded:
    """The effective settings, where each came from, and the servers ready to connect."""

    settings: Settings
    origins: Mapping[str, ValueOrigin]  # dotted path → where from
    specs: tuple[ServerSpec, ...] = ()
    warnings: tuple[Problem, ...] = ()
    files: tuple[str, ...] = ()  # that were read
    profile_files: ProfileFiles | None = None  # where more profiles are written; they may change meanwhile
    secrets: frozenset[str] = frozenset()  # dotted paths whose value came out of a secret variable


@dataclass(slots=True)
class _GatheredSettings:
    """Everything found, before anybody decides whether it is good enough."""

    settings: Settings | None = None
    origins: dict[str, ValueOrigin] = field(default_factory=dict[str, ValueOrigin])
    servers: tuple[ResolvedServer, ...] = ()
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
    gathered = _gather(_build_sources(config, servers, overrides, environ, cwd))
    found = [*gathered.problems]
    if lenient_servers:
        found += [problem.as_warning() for problem in gathered.server_problems]
    else:
        found += gathered.server_problems
    errors = tuple(problem for problem in found if not problem.warning)
    if errors or gathered.settings is None:
        raise to_error(errors)
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


def _gather(sources: Sources) -> _GatheredSettings:
    gathered = _GatheredSettings()
    document = _read_config(sources, gathered)
    given, warnings = read_environment(sources.environ)
    stronger, refused = read_arguments(sources)
    gathered.problems += (*warnings, *refused)
    values, places = _merge(document, (*given, *stronger))
    where = ValidationContext(lambda path: _get_origin(path, places, document))
    settings, problems = validate(Settings, values, where)
    gathered.problems += problems
    if settings is not None and settings.store.url:
        remember_url(settings.store.url)
    if settings is not None:
        gathered.problems += (
            where.build_problem(flaw.path, flaw.message, flaw.fix) for flaw in find_flaws(settings)
        )
    documents: Mapping[str, SettingsDocument] = {}
    if settings is not None:
        settings, documents = _add_profiles(sources, settings, where, document, gathered)
    servers_document = _read_servers(sources, values, where.origin(("servers_file",)), document, gathered)
    timeout = (settings or Settings()).limits.connect_timeout
    _add_servers(sources, document, servers_document, timeout, gathered)
    if settings is not None:
        entries = {
            server.draft.name: server.settings for server in gathered.servers if server.settings is not None
        }
        gathered.settings = settings.model_copy(update={"servers": entries})
        gathered.origins = _collect_origins(gathered.settings, where, gathered.servers)
        gathered.origins |= _collect_profile_origins(gathered.settings, where, documents)
    if not gathered.servers and not gathered.server_problems and "servers_file" not in values:
        gathered.problems += _suggest_project_file(sources)
    return gathered


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
    """The values of the file with single values laid over them; servers are taken apart elsewhere."""
    values: dict[str, object] = dict(document.values) if document else {}
    values.pop("servers", None)
    places: dict[KeyPath, ValueOrigin] = {}
    for one in given:
        values = _set_value(values, one.path, one.value)
        places[one.path] = one.origin
    return values, places


def _set_value(values: Mapping[str, object], path: tuple[str, ...], value: object) -> dict[str, object]:
    """`values` with one value laid over them. A section that is no table stays, to be reported as such."""
    name, *rest = path
    if not rest:
        return {**values, name: value}
    inner = as_table(values.get(name, {}))
    return dict(values) if inner is None else {**values, name: _set_value(inner, tuple(rest), value)}


def _get_origin(
    path: KeyPath, places: Mapping[KeyPath, ValueOrigin], document: SettingsDocument | None
) -> ValueOrigin:
    for length in range(len(path), 0, -1):
        if path[:length] in places:
            return places[path[:length]]
    return document.get_origin(path) if document else DEFAULT_ORIGIN


def _read_servers(
    sources: Sources,
    values: Mapping[str, object],
    origin: ValueOrigin,
    config: SettingsDocument | None,
    gathered: _GatheredSettings,
) -> SettingsDocument | None:
    """The mcpServers file, wherever it was named."""
    named = values.get("servers_file")
    if not isinstance(named, str):
        return None
    base = config.folder if config is not None and origin.kind == "file" else sources.cwd
    path = sources.resolve(named, base)
    document = read_document(path, sources.shorten(path))
    if isinstance(document, Problem):
        gathered.problems.append(document)
        return None
    gathered.files.append(document.file)
    if not find_entries(document):
        gathered.problems.append(build_no_servers_problem(document))
    return document


def _add_profiles(
    sources: Sources,
    settings: Settings,
    context: ValidationContext,
    config: SettingsDocument | None,
    gathered: _GatheredSettings,
) -> tuple[Settings, Mapping[str, SettingsDocument]]:
    """The settings with the profiles that have files of their own, and those files."""
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
        places={name: context.origin((FOLDER, name)) for name in settings.profiles},
    )
    reading = found.read()
    gathered.profile_files = found
    gathered.problems += reading.problems
    gathered.files += [document.file for document in reading.documents.values()]
    profiles = {**settings.profiles, **reading.profiles}
    return settings.model_copy(update={"profiles": profiles}), reading.documents


def _add_servers(
    sources: Sources,
    config: SettingsDocument | None,
    servers: SettingsDocument | None,
    timeout: float,
    gathered: _GatheredSettings,
) -> None:
    drafts: dict[str, ServerDraft] = {}
    for document, read in ((config, read_toml_drafts), (servers, read_drafts)):
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
    """Every effective value's origin, those never written included."""
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
    """Where each profile is written: in the settings' own file, or in one of its own."""
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
                fix=f'use it with --servers {name}, {SERVERS_FILE}={name}, or servers_file = "{name}"',
                warning=True,
            )
            return
