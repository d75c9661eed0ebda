"""Many clients' servers as one `mcpServers` file.

Entries are kept as written, variables included, except for what depends on
where the file lies: that is made absolute, since the merged file lies elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from urllib.parse import urlsplit

from fingerpost.frozen import frozen
from fingerpost.redaction import MASK, is_secret_name, scrub
from fingerpost.settings.client_files import ServerDraft
from fingerpost.settings.discover import FoundClientFile
from fingerpost.settings.document import as_list, as_table
from fingerpost.settings.problems import KeyPath, Problem, format_path
from fingerpost.settings.secrets import find_written_secrets
from fingerpost.settings.variables import PromptInput, VariableScope


@frozen
class MergeCandidate:
    """A server that may go into the merged file, and who has it."""

    name: str
    client: str
    place: str  # file and line
    entry: Mapping[str, object] = field(repr=False)
    inputs: Mapping[str, PromptInput] = field(default_factory=dict[str, PromptInput])


@frozen
class RenamedServer:
    """Two different servers had one name; the later one got another."""

    name: str
    became: str
    place: str


@frozen
class MergedServers:
    """One table of servers, and how it came about."""

    servers: Mapping[str, Mapping[str, object]] = field(repr=False)
    places: Mapping[str, tuple[str, ...]]  # name → every file and line that has it
    clients: Mapping[str, tuple[str, ...]]
    renamed: tuple[RenamedServer, ...] = ()
    inputs: Mapping[str, PromptInput] = field(default_factory=dict[str, PromptInput])
    secrets: tuple[str, ...] = ()  # where secrets are written out: github.env.GITHUB_TOKEN
    problems: tuple[Problem, ...] = ()

    def build_document(self) -> dict[str, object]:
        """The merged file's content."""
        content: dict[str, object] = {
            "mcpServers": {name: dict(entry) for name, entry in self.servers.items()}
        }
        if self.inputs:
            content["inputs"] = [_build_input_entry(name, given) for name, given in self.inputs.items()]
        return content


def merge_servers(found: Iterable[FoundClientFile]) -> MergedServers:
    """All servers of all files. Equal ones become one; of different ones the later is renamed."""
    found = tuple(found)
    servers: dict[str, Mapping[str, object]] = {}
    places: dict[str, tuple[str, ...]] = {}
    clients: dict[str, tuple[str, ...]] = {}
    renamed: list[RenamedServer] = []
    inputs: dict[str, PromptInput] = {}
    for one in _iterate_candidates(found):
        name = _find_free_name(one, servers)
        if name != one.name and name not in servers:
            renamed.append(RenamedServer(name=one.name, became=name, place=one.place))
        servers[name] = _merge_values(servers.get(name), one.entry)
        places[name] = (*places.get(name, ()), one.place)
        clients[name] = tuple(dict.fromkeys((*clients.get(name, ()), one.client)))
        inputs = {**one.inputs, **inputs}
    secrets = tuple(
        format_path((name, *path)) for name, entry in servers.items() for path in find_written_secrets(entry)
    )
    return MergedServers(
        servers=servers,
        places=places,
        clients=clients,
        renamed=tuple(renamed),
        inputs=inputs,
        secrets=secrets,
        problems=tuple(problem for file in found for problem in file.problems),
    )


def _iterate_candidates(found: Iterable[FoundClientFile]) -> Iterable[MergeCandidate]:
    for file in found:
        for draft in file.drafts:
            if (draft.values.get("command") or draft.values.get("url")) and not _is_own_gateway(draft):
                entry = to_portable_entry(draft)
                yield MergeCandidate(
                    name=draft.name,
                    client=file.client,
                    place=str(draft.document.get_origin(draft.path)),
                    entry=entry,
                    inputs={
                        name: given for name, given in draft.inputs.items() if _has_reference(entry, name)
                    },
                )


def _is_own_gateway(draft: ServerDraft) -> bool:
    """Whether the entry starts our own gateway, as `fingerpost install` writes it: no server of itself."""
    words = [str(draft.values.get("command") or ""), *map(str, as_list(draft.values.get("args")))]
    program = Path(words[0]).name
    return program == "fingerpost" or words[1:3] == ["-m", "fingerpost"] or _has_own_address(draft)


def _has_own_address(draft: ServerDraft) -> bool:
    address = urlsplit(str(draft.values.get("url") or ""))
    return draft.name == "fingerpost" and address.hostname in ("127.0.0.1", "localhost", "::1")


def _find_free_name(one: MergeCandidate, servers: Mapping[str, Mapping[str, object]]) -> str:
    """The name under which the same server already stands, or the first one nobody has."""
    name, count = one.name, 1
    while name in servers and _get_definition(servers[name]) != _get_definition(one.entry):
        name = f"{one.name}-{one.client}" if count == 1 else f"{one.name}-{one.client}-{count}"
        count += 1
    return name


def _get_definition(entry: Mapping[str, object]) -> dict[str, object]:
    """What makes a server the one it is; being switched off in one client does not."""
    return {name: value for name, value in entry.items() if name != "disabled"}


def _merge_values(first: Mapping[str, object] | None, second: Mapping[str, object]) -> Mapping[str, object]:
    if first is None or "disabled" not in second:
        return second
    return first


def to_portable_entry(draft: ServerDraft) -> dict[str, object]:
    """A standard `mcpServers` entry that means the same wherever the file lies."""
    values = draft.values
    scope = VariableScope(environ={}, folder=draft.document.folder, home=draft.document.folder)
    entry: dict[str, object] = {}
    if url := values.get("url"):
        entry["type"] = values.get("transport") or _guess_transport(str(url))
    for ours, standard in _STANDARD_NAMES.items():
        if values.get(ours) not in (None, [], {}):
            entry[standard] = _resolve_workspace(values[ours], scope.workspace)
    for name in ("cwd", "envFile"):
        if isinstance(path := entry.get(name), str) and not path.startswith(("~", "${")):
            entry[name] = str(scope.workspace / path)
    if oauth := as_table(values.get("oauth")):
        entry["oauth"] = {_OAUTH_FIELD_NAMES[name]: value for name, value in oauth.items()}
    if values.get("enabled") is False:
        entry["disabled"] = True
    return entry


_STANDARD_NAMES = {
    "command": "command",
    "args": "args",
    "env": "env",
    "env_file": "envFile",
    "cwd": "cwd",
    "url": "url",
    "headers": "headers",
    "connect_timeout": "connectTimeout",
}
_OAUTH_FIELD_NAMES = {
    "client_id": "clientId",
    "client_secret": "clientSecret",
    "scopes": "scopes",
    "redirect_port": "callbackPort",
}


def _guess_transport(url: str) -> str:
    try:
        return "sse" if urlsplit(url).path.rstrip("/").endswith("/sse") else "http"
    except ValueError:
        return "http"


def _resolve_workspace(value: object, workspace: Path) -> object:
    """`${workspaceFolder}` means the folder of the file it was written in."""
    if isinstance(value, str):
        for name in ("workspaceFolder", "workspaceRoot"):
            value = value.replace(f"${{{name}}}", str(workspace))
        return value.replace("${workspaceFolderBasename}", workspace.name)
    if (entries := as_table(value)) is not None:
        return {key: _resolve_workspace(item, workspace) for key, item in entries.items()}
    return [_resolve_workspace(item, workspace) for item in listed] if (listed := as_list(value)) else value


def _has_reference(value: object, identifier: str) -> bool:
    if isinstance(value, str):
        return f"${{input:{identifier}}}" in value
    entries = as_table(value)
    inside = entries.values() if entries is not None else as_list(value)
    return any(_has_reference(item, identifier) for item in inside)


def _build_input_entry(name: str, given: PromptInput) -> dict[str, object]:
    entry: dict[str, object] = {"id": name, "type": "promptString"}
    if given.description:
        entry["description"] = given.description
    if given.default is not None:
        entry["default"] = given.default
    return entry


def mask_secrets(content: object, secrets: Iterable[str], path: KeyPath = ()) -> object:
    """A merged file's content fit for a screen: secrets written out in it are masked, references are not."""
    hidden = frozenset(secrets)
    if isinstance(content, str):
        clean = scrub(content)
        named = "${" not in content and isinstance(path[-1], str) and is_secret_name(path[-1])
        return MASK if clean == content and (named or format_path(path[1:]) in hidden) else clean
    if (entries := as_table(content)) is not None:
        return {key: mask_secrets(item, hidden, (*path, key)) for key, item in entries.items()}
    if listed := as_list(content):
        return [mask_secrets(item, hidden, (*path, index)) for index, item in enumerate(listed)]
    return content
