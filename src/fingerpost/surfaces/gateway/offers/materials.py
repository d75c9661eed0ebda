"""Resources, templates and prompts as one caller sees them at one endpoint."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, Literal

from mcp_types import Prompt, Resource, ResourceTemplate
from pydantic import BaseModel

from fingerpost.call.patterns import Fit, fits_exactly, fits_somehow
from fingerpost.call.scopes import bounded_by
from fingerpost.catalog.definition import shown_words
from fingerpost.catalog.materials import Collection, Material, collect
from fingerpost.catalog.names import shown
from fingerpost.frozen import frozen
from fingerpost.records import Effect, Materials, Principal, Scope, ServerState
from fingerpost.router import Router
from fingerpost.settings import RuleSettings
from fingerpost.surfaces.gateway.offers.conforming import conforming
from fingerpost.surfaces.gateway.offers.encoding import encoded
from fingerpost.surfaces.gateway.offers.pages import Pages
from fingerpost.surfaces.gateway.offers.places import Places, own_scopes
from fingerpost.surfaces.web.gate import Endpoint

Kind = Literal["resources", "resourceTemplates", "prompts"]
KINDS: Final[tuple[Kind, ...]] = ("resources", "resourceTemplates", "prompts")
_MODELS: Final[Mapping[Kind, type[BaseModel]]] = {
    "resources": Resource,
    "resourceTemplates": ResourceTemplate,
    "prompts": Prompt,
}
_KEPT: Final = 200  # callers

# Profile, bounds, and who they are where rules tell callers apart.
Viewer = tuple[str | None, tuple[Scope, ...], str | None]


@frozen
class Shelf:
    """What one caller may use besides tools. `complete` is False while some server was never up."""

    viewer: Viewer
    collection: Collection
    complete: bool
    size: int
    asked: Mapping[str, str] = field(default_factory=dict[str, str])  # servers to ask a person about, and why
    _pages: dict[Kind, Pages] = field(default_factory=dict[Kind, Pages], repr=False, compare=False)

    def pages(self, kind: Kind) -> Pages:
        """The list of this kind, encoded once."""
        pages = self._pages.get(kind)
        if pages is None:
            entries = tuple(self._entries(kind))
            pages = self._pages[kind] = Pages(
                kind, [name for name, _ in entries], [body for _, body in entries], self.size
            )
        return pages

    def _entries(self, kind: Kind) -> Iterator[tuple[str, bytes]]:
        for material in self._of(kind):
            words = shown_words(material.definition)
            given = words if isinstance(words, Mapping) else material.definition
            made = conforming(given, _MODELS[kind], instead={"name": material.name})
            if made is None:
                continue
            name = made.get("name")
            if kind != "prompts" and isinstance(name, str):  # resources are asked for by their address
                made = {**made, "name": shown(name)}
            yield f"{material.server}/{material.name}", encoded(made)

    def _of(self, kind: Kind) -> Iterator[Material]:
        if kind == "resources":
            yield from self.collection.resources.values()
        elif kind == "prompts":
            yield from self.collection.prompts.values()
        else:
            yield from self.collection.templates.values()


class MaterialOffers:
    """Shelves by endpoint and caller, kept until a server's offers change."""

    def __init__(self, router: Router, places: Places) -> None:
        self._router = router
        self._places = places
        self._sources: tuple[Materials | None, ...] = ()
        self._shelves: OrderedDict[Viewer, Shelf] = OrderedDict()
        self._read_rules()

    def _read_rules(self) -> None:
        """The rules about servers as they are now: profiles bring some, and may change."""
        router = self._router
        self._version = router.profiles.version
        self._rules = tuple(
            rule for rule in map(_widened, router.settings.policy) if _is_about_a_server(rule)
        )
        by_rule = any(rule.caller is not None for rule in self._rules)
        self._by_caller = by_rule or router.profiles.by_caller
        self._shelves.clear()

    def of(self, endpoint: Endpoint, principal: Principal) -> Shelf:
        """What this caller may use here besides tools."""
        return self.seen_by(self.viewer(endpoint, principal))

    def viewer(self, endpoint: Endpoint, principal: Principal) -> Viewer:
        """Those who see the same are the same."""
        self._up_to_date()
        place = self._places.of(endpoint, principal)
        return (place.profile, own_scopes(principal), principal.name if self._by_caller else None)

    def _up_to_date(self) -> None:
        if self._version != self._router.profiles.version:
            self._read_rules()

    def seen_by(self, viewer: Viewer) -> Shelf:
        self._up_to_date()
        sources = self._read()
        if not _same(sources, self._sources):
            self._sources = sources
            self._shelves.clear()
        shelf = self._shelves.get(viewer)
        if shelf is None:
            shelf = self._shelves[viewer] = self._make(viewer)
            while len(self._shelves) > _KEPT:
                self._shelves.popitem(last=False)
        return shelf

    def permits(self, viewer: Viewer, server: str) -> bool:
        """Whether this caller may use what a server offers besides tools: all of that only reads."""
        profile, scopes, caller = viewer
        scopes = bounded_by(scopes, profile, self._router.profiles.bounds)
        if not all(_covers(scope, server) for scope in scopes):
            return False
        rule = self._rule(server, caller, profile)
        return rule is None or rule.verdict != "deny"

    def _reason_to_ask(self, viewer: Viewer, server: str) -> str | None:
        """Why a person is asked before anything of this server is read; None: nobody is."""
        profile, _, caller = viewer
        rule = self._rule(server, caller, profile)
        if rule is None or rule.verdict != "ask":
            return None
        return rule.reason or f"a rule asks a person about everything of {server}"

    def _read(self) -> tuple[Materials | None, ...]:
        servers = self._router.servers
        return tuple(servers.materials(status.name) for status in servers.statuses)

    def _make(self, viewer: Viewer) -> Shelf:
        servers = self._router.servers
        offered: list[tuple[Materials, bool]] = []
        asked: dict[str, str] = {}
        complete = True
        for status in servers.statuses:
            if not self.permits(viewer, status.name):
                continue
            materials = servers.materials(status.name)
            if materials is None:
                complete = complete and status.state in (ServerState.DISABLED, ServerState.DOWN)
                continue
            listing = servers.listing(status.name)
            offered.append((materials, listing is None or listing.prefix))
            if (reason := self._reason_to_ask(viewer, status.name)) is not None:
                asked[status.name] = reason
        return Shelf(
            viewer=viewer,
            collection=collect(offered),
            complete=complete,
            size=self._router.settings.gateway.page_size,
            asked=asked,
        )

    def _rule(self, server: str, caller: str | None, profile: str | None) -> RuleSettings | None:
        """The first rule about this server as a whole: it decides. Without one everything may be read."""
        for rule in self._rules:
            allows = rule.verdict == "allow"
            conditions = ((rule.server, server), (rule.caller, caller), (rule.profile, profile))
            if all(_meets(pattern, value, allows=allows) for pattern, value in conditions):
                return rule
        return None


def _widened(rule: RuleSettings) -> RuleSettings:
    """Whoever denies every tool of a server means the server, not its tools alone."""
    if rule.verdict != "deny" or rule.server is not None or rule.tool is None:
        return rule
    server, _, tools = rule.tool.partition("/")
    return rule.model_copy(update={"server": server, "tool": None}) if tools == "*" else rule


def _is_about_a_server(rule: RuleSettings) -> bool:
    """Whether it is about all that a server has, or about all that only reads, as everything here does."""
    narrower = (rule.tool, rule.operation, rule.paths)
    if rule.arguments or any(condition is not None for condition in narrower):
        return False
    return rule.effect is None or rule.effect is Effect.READ


def _meets(pattern: str | None, value: str | None, *, allows: bool) -> bool:
    """As for tools: a rule that allows is not satisfied by what is missing, and no other is dodged by it."""
    if pattern is None:
        return True
    if value is None:
        return not allows and pattern == "*"
    fits = fits_exactly if allows else fits_somehow
    return fits(pattern, value) is not Fit.NO


def _covers(scope: Scope, server: str) -> bool:
    if scope.effects and Effect.READ not in scope.effects:
        return False
    # Whoever may use single tools of a server may use what belongs to them, and no other server's things.
    names = [*scope.servers, *(pattern.partition("/")[0] for pattern in scope.tools)]
    if scope.servers and not _one_of(scope.servers, server):
        return False
    return not names or _one_of(names, server)


def _one_of(patterns: Sequence[str], name: str) -> bool:
    return any(fits_exactly(pattern, name) is Fit.YES for pattern in patterns)


def _same(first: tuple[Materials | None, ...], second: tuple[Materials | None, ...]) -> bool:
    return len(first) == len(second) and all(one is other for one, other in zip(first, second, strict=True))
