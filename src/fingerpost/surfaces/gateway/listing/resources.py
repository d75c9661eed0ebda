"""Resources, templates and prompts that a caller sees at an endpoint."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, Literal

from mcp_types import Prompt, Resource, ResourceTemplate
from pydantic import BaseModel

from fingerpost.catalog.cards import make_text_visible
from fingerpost.catalog.resources import CatalogResource, ResourceCollection, collect_resources
from fingerpost.catalog.tool_names import escape_invisible
from fingerpost.frozen import frozen
from fingerpost.policy.paths import PatternFit, match_exactly
from fingerpost.policy.rules import Rule, Subject, add_profile_scope, build_rules
from fingerpost.records import Effect, Principal, Scope, ServerResources, ServerState, Verdict
from fingerpost.router import Router
from fingerpost.settings import RuleSettings
from fingerpost.surfaces.gateway.listing.pages import ListPages, conform_entry, encode_json
from fingerpost.surfaces.gateway.listing.tools import EndpointConfigs, get_principal_scopes
from fingerpost.surfaces.http.access import Endpoint

ResourceKind = Literal["resources", "resourceTemplates", "prompts"]
RESOURCE_KINDS: Final[tuple[ResourceKind, ...]] = ("resources", "resourceTemplates", "prompts")
_MODEL_BY_KIND: Final[Mapping[ResourceKind, type[BaseModel]]] = {
    "resources": Resource,
    "resourceTemplates": ResourceTemplate,
    "prompts": Prompt,
}
_MAX_CACHED_VIEWS: Final = 200  # callers

# Profile, scopes, and the caller's name if rules depend on the caller.
ResourceViewer = tuple[str | None, tuple[Scope, ...], str | None]


@frozen
class VisibleResources:
    """Resources, templates and prompts of one caller. `complete`: every server was connected once."""

    viewer: ResourceViewer
    collection: ResourceCollection
    complete: bool
    size: int
    approval_reasons: Mapping[str, str] = field(default_factory=dict[str, str])  # reasons by server
    _pages: dict[ResourceKind, ListPages] = field(
        default_factory=dict[ResourceKind, ListPages], repr=False, compare=False
    )

    def get_pages(self, kind: ResourceKind) -> ListPages:
        """Return the list of this kind, encoded once."""
        pages = self._pages.get(kind)
        if pages is None:
            entries = tuple(self._encode_entries(kind))
            pages = self._pages[kind] = ListPages(
                kind, [name for name, _ in entries], [body for _, body in entries], self.size
            )
        return pages

    def _encode_entries(self, kind: ResourceKind) -> Iterator[tuple[str, bytes]]:
        for resource in self._iterate_kind(kind):
            words = make_text_visible(resource.definition)
            given = words if isinstance(words, Mapping) else resource.definition
            made = conform_entry(given, _MODEL_BY_KIND[kind], replacements={"name": resource.name})
            if made is None:
                continue
            name = made.get("name")
            if kind != "prompts" and isinstance(name, str):  # resources are identified by their URI
                made = {**made, "name": escape_invisible(name)}
            yield f"{resource.server}/{resource.name}", encode_json(made)

    def _iterate_kind(self, kind: ResourceKind) -> Iterator[CatalogResource]:
        if kind == "resources":
            yield from self.collection.resources.values()
        elif kind == "prompts":
            yield from self.collection.prompts.values()
        else:
            yield from self.collection.templates.values()


class ResourceListing:
    """Visible resources by endpoint and caller, cached until a server's lists change."""

    def __init__(self, router: Router, endpoint_configs: EndpointConfigs) -> None:
        self._router = router
        self._endpoint_configs = endpoint_configs
        self._sources: tuple[ServerResources | None, ...] = ()
        self._resources_by_viewer: OrderedDict[ResourceViewer, VisibleResources] = OrderedDict()
        self._read_rules()

    def _read_rules(self) -> None:
        """Read the current rules about servers. Profiles add rules, and profiles may change."""
        router = self._router
        self._version = router.profiles.version
        rules = build_rules([_widen_rule(rule) for rule in router.settings.policy])
        self._rules = tuple(rule for rule in rules if _is_about_a_server(rule))
        by_rule = any(rule.settings.caller is not None for rule in self._rules)
        self._by_caller = by_rule or router.profiles.depends_on_caller
        self._resources_by_viewer.clear()

    def get_resources(self, endpoint: Endpoint, principal: Principal) -> VisibleResources:
        """Return what this caller may use at this endpoint besides tools."""
        return self.get_viewed_resources(self.get_viewer(endpoint, principal))

    def get_viewer(self, endpoint: Endpoint, principal: Principal) -> ResourceViewer:
        """Return the cache key of this caller. Callers that see the same have the same key."""
        self._refresh()
        config = self._endpoint_configs.get_config(endpoint, principal)
        return (config.profile, get_principal_scopes(principal), principal.name if self._by_caller else None)

    def _refresh(self) -> None:
        if self._version != self._router.profiles.version:
            self._read_rules()

    def get_viewed_resources(self, viewer: ResourceViewer) -> VisibleResources:
        self._refresh()
        sources = self._read_servers()
        if not _is_unchanged(sources, self._sources):
            self._sources = sources
            self._resources_by_viewer.clear()
        resources = self._resources_by_viewer.get(viewer)
        if resources is None:
            resources = self._resources_by_viewer[viewer] = self._build_resources(viewer)
            while len(self._resources_by_viewer) > _MAX_CACHED_VIEWS:
                self._resources_by_viewer.popitem(last=False)
        return resources

    def is_permitted(self, viewer: ResourceViewer, server: str) -> bool:
        """Return whether this caller may use a server's resources and prompts. All of these only read."""
        profile, scopes, caller = viewer
        scopes = add_profile_scope(scopes, profile, self._router.profiles.bounds)
        if not all(_covers_server(scope, server) for scope in scopes):
            return False
        rule = self._find_rule(server, caller, profile)
        return rule is None or rule.verdict is not Verdict.DENY

    def _get_approval_reason(self, viewer: ResourceViewer, server: str) -> str | None:
        """Return why reading from this server needs an approval, or None if it does not."""
        profile, _, caller = viewer
        rule = self._find_rule(server, caller, profile)
        if rule is None or rule.verdict is not Verdict.ASK:
            return None
        return rule.settings.reason or f"a rule asks a person about everything of {server}"

    def _read_servers(self) -> tuple[ServerResources | None, ...]:
        servers = self._router.servers
        return tuple(servers.get_resources(status.name) for status in servers.statuses)

    def _build_resources(self, viewer: ResourceViewer) -> VisibleResources:
        servers = self._router.servers
        offered: list[tuple[ServerResources, bool]] = []
        approval_reasons: dict[str, str] = {}
        complete = True
        for status in servers.statuses:
            if not self.is_permitted(viewer, status.name):
                continue
            server_resources = servers.get_resources(status.name)
            if server_resources is None:
                complete = complete and status.state in (ServerState.DISABLED, ServerState.DOWN)
                continue
            listing = servers.get_listing(status.name)
            offered.append((server_resources, listing is None or listing.prefix))
            if (reason := self._get_approval_reason(viewer, status.name)) is not None:
                approval_reasons[status.name] = reason
        return VisibleResources(
            viewer=viewer,
            collection=collect_resources(offered),
            complete=complete,
            size=self._router.settings.gateway.page_size,
            approval_reasons=approval_reasons,
        )

    def _find_rule(self, server: str, caller: str | None, profile: str | None) -> Rule | None:
        """Return the first rule about this server as a whole. Without one, every read is permitted."""
        subject = Subject(server=server, effect=Effect.READ, caller=caller, profile=profile)
        return next((rule for rule in self._rules if rule.match(subject) is not PatternFit.NO), None)


def _widen_rule(rule: RuleSettings) -> RuleSettings:
    """Turn a rule that denies every tool of a server into a rule about the whole server."""
    if rule.verdict != "deny" or rule.server is not None or rule.tool is None:
        return rule
    server, _, tools = rule.tool.partition("/")
    return rule.model_copy(update={"server": server, "tool": None}) if tools == "*" else rule


def _is_about_a_server(rule: Rule) -> bool:
    """Return whether the rule covers a whole server, or all reads of it."""
    conditions = {condition.field for condition in rule.conditions}
    is_wide = conditions <= {"server", "effect", "caller", "profile"}
    return is_wide and rule.settings.effect in (None, Effect.READ)


def _covers_server(scope: Scope, server: str) -> bool:
    if scope.effects and Effect.READ not in scope.effects:
        return False
    # A caller limited to single tools may use the resources of their servers, and of no others.
    names = [*scope.servers, *(pattern.partition("/")[0] for pattern in scope.tools)]
    if scope.servers and not _matches_any(scope.servers, server):
        return False
    return not names or _matches_any(names, server)


def _matches_any(patterns: Sequence[str], name: str) -> bool:
    return any(match_exactly(pattern, name) is PatternFit.YES for pattern in patterns)


def _is_unchanged(
    first: tuple[ServerResources | None, ...], second: tuple[ServerResources | None, ...]
) -> bool:
    return len(first) == len(second) and all(one is other for one, other in zip(first, second, strict=True))
