"""Resources, templates and prompts of all servers as one collection, and matching of URI templates."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, TypeVar
from urllib.parse import quote, unquote

from fingerpost.catalog.tool_names import build_exposed_name, build_free_name, escape_invisible_except
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, ServerResources

T = TypeVar("T")

MAX_URI_LENGTH: Final = 4096  # characters of an address
MAX_TEMPLATE_LENGTH: Final = 2000
MAX_EXPRESSIONS: Final = 20
# Characters that may be looked at for one address and one server. A few hundred
# ordinary templates with the same beginning need no more.
MAX_MATCH_STEPS: Final = 50_000
_EXPRESSION = re.compile(r"\{([+#./;?&]?)[^{}]*\}")

# What the values of an expression cannot hold, by its operator (RFC 6570, levels 1 to 3).
# Of any two of these the shorter is part of the longer.
_STOP_CHARACTERS: Final = {"+": "", "#": "", "/": "?#", "?": "#", "&": "#", "": "/?#", ".": "/?#", ";": "/?#"}


@frozen(kw_only=False)
class UriTemplate:
    """A template, taken apart: texts as they are, and between each two of them a value."""

    text: str
    fixed: tuple[str, ...]
    stops: tuple[str, ...]  # what each value cannot hold
    literal: int  # characters that are always the same: the more, the more it says

    @classmethod
    def parse(cls, text: str) -> UriTemplate | None:
        """The template so written, or None for one that is too long or has too many expressions."""
        if len(text) > MAX_TEMPLATE_LENGTH:
            return None
        first, *rest = _EXPRESSION.split(text)
        if len(rest) > 2 * MAX_EXPRESSIONS:
            return None
        fixed, stops = [first], list[str]()
        for operator, following in zip(rest[::2], rest[1::2], strict=True):
            if stops and not fixed[-1]:
                # Two values with nothing between them: what may hold the more can be both.
                stops[-1] = min(stops[-1], _STOP_CHARACTERS[operator], key=len)
                fixed[-1] = following
            else:
                stops.append(_STOP_CHARACTERS[operator])
                fixed.append(following)
        return cls(text, tuple(fixed), tuple(stops), sum(map(len, fixed)))

    def may_match(self, uri: str) -> bool:
        """Whether it begins and ends as the template does: nearly always enough to say no."""
        return uri.startswith(self.fixed[0]) and uri.endswith(self.fixed[-1])

    def matches(self, uri: str) -> bool:
        """Whether this address can have been made from the template.

        Takes a step for each character of both. Every character and every value of the
        template is a place, and the place after the last means that all of it was passed.
        """
        if len(uri) > MAX_URI_LENGTH or not self.may_match(uri):
            return False
        characters, values, ended_by, end = self._build_masks()
        reached = 1
        for character in uri:
            reached |= (reached & values) << 1  # a value may be over here, or empty
            going_on = reached & values & ~ended_by.get(character, 0)
            reached = going_on | ((reached & characters.get(character, 0)) << 1)
            if not reached:
                return False
        reached |= (reached & values) << 1
        return bool(reached & end)

    def _build_masks(self) -> tuple[dict[str, int], int, dict[str, int], int]:
        """Where each character stands, where values stand, which of these a character ends, and the end."""
        characters: dict[str, int] = {}
        ended_by: dict[str, int] = {}
        values = 0
        place = 1
        for position, text in enumerate(self.fixed):
            if position > 0:
                values |= place
                for character in self.stops[position - 1]:
                    ended_by[character] = ended_by.get(character, 0) | place
                place <<= 1
            for character in text:
                characters[character] = characters.get(character, 0) | place
                place <<= 1
        return characters, values, ended_by, place


def find_first_match(uri: str, templates: Iterable[tuple[UriTemplate, str, T]]) -> T | None:
    """What belongs to the first template that the address fits; each with the server it is from.

    A server whose templates would take long is passed over once it had its share: nobody
    else waits for it, and nobody else's templates are left untried for it.
    """
    spent: dict[str, int] = {}
    for template, server, found in templates:
        if not template.may_match(uri):
            continue
        spent[server] = spent.get(server, 0) + len(uri) + len(template.text)
        if spent[server] <= MAX_MATCH_STEPS and template.matches(uri):
            return found
    return None


ALIAS_SCHEME: Final = "fingerpost://"

logger = logging.getLogger(__name__)


@frozen
class CatalogResource:
    """One thing of one server: what it is called here, what it is called there, and how it is shown."""

    server: str
    name: str  # here: an address, a template or a prompt's name
    original: str  # there
    definition: JsonObject


@frozen
class ResourceCollection:
    """What some servers offer together. Never changes."""

    servers: tuple[str, ...] = ()  # those that have resources, in order
    resources: Mapping[str, CatalogResource] = field(default_factory=dict[str, CatalogResource])
    templates: Mapping[str, CatalogResource] = field(default_factory=dict[str, CatalogResource])
    prompts: Mapping[str, CatalogResource] = field(default_factory=dict[str, CatalogResource])
    capabilities: JsonObject = field(default_factory=dict[str, Json])
    logging: tuple[str, ...] = ()  # servers that send log messages
    _patterns: list[tuple[UriTemplate, str, CatalogResource]] = field(
        default_factory=list[tuple[UriTemplate, str, CatalogResource]], repr=False, compare=False
    )

    def find_resource(self, uri: str) -> tuple[str, str] | None:
        """The server that has this resource, and what it calls it."""
        listed = self.resources.get(uri)
        if listed is not None:
            return listed.server, listed.original
        if len(uri) > MAX_URI_LENGTH:
            return None
        if uri.startswith(ALIAS_SCHEME):
            return self._parse_alias(uri)
        return self._find_by_template(uri) or self._find_by_scheme(uri)

    def find_template(self, uri: str) -> tuple[str, str] | None:
        """The server whose template (or resource) this is, for completing its values."""
        listed = self.templates.get(uri)
        return (listed.server, listed.original) if listed is not None else self.find_resource(uri)

    def find_prompt(self, name: str) -> tuple[str, str] | None:
        """By the name it is listed under, or by its server's own if only one has it; as with tools."""
        listed = self.prompts.get(name)
        if listed is None:
            namesakes = [prompt for prompt in self.prompts.values() if prompt.original == name]
            listed = namesakes[0] if len(namesakes) == 1 else None
        return None if listed is None else (listed.server, listed.original)

    def get_alias(self, server: str, uri: str) -> str:
        """What this server's resource is called here: its own address may be another server's, too."""
        where = self.find_resource(uri)
        if where == (server, uri):
            return uri
        ours = build_alias(server, uri)
        return ours if ours in self.resources or self._is_ambiguous(server, uri, where) else uri

    def _is_ambiguous(self, server: str, uri: str, where: tuple[str, str] | None) -> bool:
        """Whether this server's address, which leads to `where`, had better name its server."""
        if where is None:  # nobody has it; only what looks like ours is nowhere to be read as it stands
            return uri.startswith(ALIAS_SCHEME) and server in self.servers
        if where[0] == server:
            return False
        if uri in self.resources or uri.startswith(ALIAS_SCHEME) or self._find_by_template(uri) is not None:
            return True
        # Nobody offers it: who is asked for it is a guess. A page of the web is the same for everybody.
        return server in self.servers and not uri[:8].lower().startswith(("http://", "https://"))

    def _parse_alias(self, uri: str) -> tuple[str, str] | None:
        server, _, original = uri[len(ALIAS_SCHEME) :].partition("/")
        server = unquote(server)
        return (server, original) if server in self.servers and original else None

    def _find_by_template(self, uri: str) -> tuple[str, str] | None:
        found = find_first_match(uri, self._patterns)
        return None if found is None else (found.server, uri)

    def _find_by_scheme(self, uri: str) -> tuple[str, str] | None:
        """A resource nobody listed: the only server that can have it, if there is just one."""
        if len(self.servers) == 1:
            return self.servers[0], uri
        start = uri.partition(":")[0] + ":"
        having = {
            material.server
            for material in (*self.resources.values(), *self.templates.values())
            if material.original.startswith(start)
        }
        return (having.pop(), uri) if len(having) == 1 else None


def build_alias(server: str, uri: str) -> str:
    """The same address, unmistakably that server's."""
    return f"{ALIAS_SCHEME}{quote(server, safe='')}/{uri}"


def collect_resources(offered: Iterable[tuple[ServerResources, bool]]) -> ResourceCollection:
    """Everything these servers offer; with each, whether its prompts get its name before theirs."""
    offered = tuple(offered)
    resources = _collect_addressed((each for each, _ in offered), "resources", "uri")
    templates = _collect_addressed((each for each, _ in offered), "templates", "uriTemplate")
    return ResourceCollection(
        servers=tuple(each.server for each, _ in offered if "resources" in each.capabilities),
        resources=resources,
        templates=templates,
        prompts=_collect_prompts(offered),
        capabilities=_merge_capabilities([each.capabilities for each, _ in offered]),
        logging=tuple(each.server for each, _ in offered if "logging" in each.capabilities),
        _patterns=_build_patterns(templates),
    )


def _collect_addressed(
    offered: Iterable[ServerResources], kind: str, member: str
) -> dict[str, CatalogResource]:
    found: dict[str, CatalogResource] = {}
    for materials in offered:
        entries: Sequence[JsonObject] = getattr(materials, kind)
        for entry in entries:
            address = entry.get(member)
            if not isinstance(address, str):
                continue
            taken = address in found or address.startswith(
                ALIAS_SCHEME
            )  # nobody else speaks in our addresses
            name = build_alias(materials.server, address) if taken else address
            definition = entry if name == address else {**entry, member: name}
            material = CatalogResource(
                server=materials.server, name=name, original=address, definition=definition
            )
            found.setdefault(name, material)
    return found


def _build_patterns(
    templates: Mapping[str, CatalogResource],
) -> list[tuple[UriTemplate, str, CatalogResource]]:
    """What addresses are recognised by, the most telling first."""
    patterns: list[tuple[UriTemplate, str, CatalogResource]] = []
    for name, material in templates.items():
        template = UriTemplate.parse(name)
        if template is None:
            shown = escape_invisible_except(name[:80])
            logger.debug("%s: no address is recognised by a template so large: %s…", material.server, shown)
        else:
            patterns.append((template, material.server, material))
    return sorted(patterns, key=lambda entry: -entry[0].literal)


def _collect_prompts(offered: Sequence[tuple[ServerResources, bool]]) -> dict[str, CatalogResource]:
    found: dict[str, CatalogResource] = {}
    for prefixed in (True, False):  # a name with its server's before it never changes
        for materials, prefix in offered:
            if prefix is prefixed:
                _add_prompts(materials, found, prefix=prefix)
    order = {materials.server: position for position, (materials, _) in enumerate(offered)}
    return dict(sorted(found.items(), key=lambda entry: order[entry[1].server]))


def _add_prompts(materials: ServerResources, found: dict[str, CatalogResource], *, prefix: bool) -> None:
    for entry in materials.prompts:
        original = entry.get("name")
        if not isinstance(original, str):
            continue
        server = materials.server
        name = build_exposed_name(server, original) if prefix else build_free_name(server, original, found)
        definition = entry if name == original else {**entry, "name": name}
        material = CatalogResource(server=server, name=name, original=original, definition=definition)
        found.setdefault(name, material)


def _merge_capabilities(declared: Sequence[JsonObject]) -> JsonObject:
    """What some server can do; lists may always change, since servers come and go."""
    merged: dict[str, Json] = {}
    if any("resources" in each for each in declared):
        subscribe = any(_declares(each, "resources", "subscribe") for each in declared)
        merged["resources"] = {"listChanged": True, **({"subscribe": True} if subscribe else {})}
    if any("prompts" in each for each in declared):
        merged["prompts"] = {"listChanged": True}
    for plain in ("completions", "logging"):
        if any(plain in each for each in declared):
            merged[plain] = {}
    return merged


def _declares(declared: JsonObject, part: str, what: str) -> bool:
    inner = declared.get(part)
    return isinstance(inner, Mapping) and inner.get(what) is True
