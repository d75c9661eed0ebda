"""Resources, templates and prompts of all servers as one collection, and URI template matching."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote, unquote

from fingerpost.catalog.tool_names import build_exposed_name, build_free_name, escape_invisible_except
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, ServerResources

T = TypeVar("T")

MAX_URI_LENGTH: Final = 4096  # characters of a URI
MAX_TEMPLATE_LENGTH: Final = 2000
MAX_EXPRESSIONS: Final = 20
# Characters that may be examined for one URI and one server. This is enough for a few hundred
# ordinary templates with the same prefix.
MAX_MATCH_STEPS: Final = 50_000
_EXPRESSION = re.compile(r"\{([+#./;?&]?)[^{}]*\}")

# Characters that end the values of an expression, by operator (RFC 6570, levels 1 to 3).
# Each set is a subset of every longer one.
_STOP_CHARACTERS: Final = {"+": "", "#": "", "/": "?#", "?": "#", "&": "#", "": "/?#", ".": "/?#", ";": "/?#"}


@frozen(kw_only=False)
class UriTemplate:
    """A parsed template: literal texts with a value between each two of them."""

    text: str
    fixed: tuple[str, ...]
    stops: tuple[str, ...]  # characters that end each value
    literal: int  # number of literal characters; more means more specific

    @classmethod
    def parse(cls, text: str) -> UriTemplate | None:
        """Parse a template. Return None if it is too long or has too many expressions."""
        if len(text) > MAX_TEMPLATE_LENGTH:
            return None
        first, *rest = _EXPRESSION.split(text)
        if len(rest) > 2 * MAX_EXPRESSIONS:
            return None
        fixed, stops = [first], list[str]()
        for operator, following in zip(rest[::2], rest[1::2], strict=True):
            if stops and not fixed[-1]:
                # Two adjacent values are merged to the one that allows more characters.
                stops[-1] = min(stops[-1], _STOP_CHARACTERS[operator], key=len)
                fixed[-1] = following
            else:
                stops.append(_STOP_CHARACTERS[operator])
                fixed.append(following)
        return cls(text, tuple(fixed), tuple(stops), sum(map(len, fixed)))

    def may_match(self, uri: str) -> bool:
        """Return whether the URI has the template's prefix and suffix. This rules out most URIs."""
        return uri.startswith(self.fixed[0]) and uri.endswith(self.fixed[-1])

    def matches(self, uri: str) -> bool:
        """Return whether this URI can be produced by the template, in linear time."""
        if len(uri) > MAX_URI_LENGTH or not self.may_match(uri):
            return False
        try:
            return _compile_template(self.fixed, self.stops)(uri) is not None
        except UnicodeEncodeError:  # a lone surrogate
            return False


@lru_cache(maxsize=1024)
def _compile_template(fixed: tuple[str, ...], stops: tuple[str, ...]) -> Callable[[str], object]:
    engine: Any = import_module("re2")  # loaded on first use; it has no type information
    values = [f"[^{stop}]*" if stop else "(?s:.)*" for stop in stops]
    pieces = (f"{engine.escape(text)}{value}" for text, value in zip(fixed, [*values, ""], strict=True))
    return cast("Callable[[str], object]", engine.compile("".join(pieces)).fullmatch)


def find_first_match(uri: str, templates: Iterable[tuple[UriTemplate, str, T]]) -> T | None:
    """Return the item of the first template that matches the URI. Each template comes with its server.

    A server whose templates take too long is skipped after its share of steps, so that it does not affect
    other servers.
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
    """One resource, template or prompt of one server: its name here and there, and its entry."""

    server: str
    name: str  # listed name: a URI, a template or a prompt name
    original: str  # name on the server
    definition: JsonObject


@frozen
class ResourceCollection:
    """The resources, templates and prompts of several servers. Immutable."""

    servers: tuple[str, ...] = ()  # servers with resources, in order
    resources: Mapping[str, CatalogResource] = field(default_factory=dict[str, CatalogResource])
    templates: Mapping[str, CatalogResource] = field(default_factory=dict[str, CatalogResource])
    prompts: Mapping[str, CatalogResource] = field(default_factory=dict[str, CatalogResource])
    capabilities: JsonObject = field(default_factory=dict[str, Json])
    logging: tuple[str, ...] = ()  # servers that send log messages
    _patterns: list[tuple[UriTemplate, str, CatalogResource]] = field(
        default_factory=list[tuple[UriTemplate, str, CatalogResource]], repr=False, compare=False
    )

    def find_resource(self, uri: str) -> tuple[str, str] | None:
        """Return the server that has this resource and the URI on that server, or None."""
        listed = self.resources.get(uri)
        if listed is not None:
            return listed.server, listed.original
        if len(uri) > MAX_URI_LENGTH:
            return None
        if uri.startswith(ALIAS_SCHEME):
            server, _, original = uri[len(ALIAS_SCHEME) :].partition("/")
            server = unquote(server)
            return (server, original) if server in self.servers and original else None
        return self._find_by_template(uri) or self._find_by_scheme(uri)

    def find_template(self, uri: str) -> tuple[str, str] | None:
        """Return the server and original URI of this template (or resource), for completion."""
        listed = self.templates.get(uri)
        return (listed.server, listed.original) if listed is not None else self.find_resource(uri)

    def find_prompt(self, name: str) -> tuple[str, str] | None:
        """Find a prompt by its listed name, or by its original name if that is unique."""
        listed = self.prompts.get(name)
        if listed is None:
            namesakes = [prompt for prompt in self.prompts.values() if prompt.original == name]
            listed = namesakes[0] if len(namesakes) == 1 else None
        return None if listed is None else (listed.server, listed.original)

    def get_listed_uri(self, server: str, uri: str) -> str:
        """Return the URI of this server's resource as listed: its own, or an alias if that is ambiguous."""
        where = self.find_resource(uri)
        if where == (server, uri):
            return uri
        ours = build_alias(server, uri)
        return ours if ours in self.resources or self._is_ambiguous(server, uri, where) else uri

    def _is_ambiguous(self, server: str, uri: str, where: tuple[str, str] | None) -> bool:
        """Return whether this server's URI, which resolves to `where`, needs an alias."""
        if where is None:  # not found; only a URI with our alias scheme cannot be read as it is
            return uri.startswith(ALIAS_SCHEME) and server in self.servers
        if where[0] == server:
            return False
        if uri in self.resources or uri.startswith(ALIAS_SCHEME) or self._find_by_template(uri) is not None:
            return True
        # No server lists it, so the result would be a guess. Web pages are the same for every server.
        return server in self.servers and not uri[:8].lower().startswith(("http://", "https://"))

    def _find_by_template(self, uri: str) -> tuple[str, str] | None:
        found = find_first_match(uri, self._patterns)
        return None if found is None else (found.server, uri)

    def _find_by_scheme(self, uri: str) -> tuple[str, str] | None:
        """Return the only server that can have an unlisted resource, or None."""
        if len(self.servers) == 1:
            return self.servers[0], uri
        start = uri.partition(":")[0] + ":"
        having = {
            resource.server
            for resource in (*self.resources.values(), *self.templates.values())
            if resource.original.startswith(start)
        }
        return (having.pop(), uri) if len(having) == 1 else None


def build_alias(server: str, uri: str) -> str:
    """Return a URI that names the server explicitly."""
    return f"{ALIAS_SCHEME}{quote(server, safe='')}/{uri}"


def collect_resources(offered: Iterable[tuple[ServerResources, bool]]) -> ResourceCollection:
    """Collect resources, templates and prompts of servers. The flag: prompts get the server's name."""
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
    for offer in offered:
        entries: Sequence[JsonObject] = getattr(offer, kind)
        for entry in entries:
            address = entry.get(member)
            if not isinstance(address, str):
                continue
            # Only we use this scheme.
            taken = address in found or address.startswith(ALIAS_SCHEME)
            name = build_alias(offer.server, address) if taken else address
            definition = entry if name == address else {**entry, member: name}
            resource = CatalogResource(
                server=offer.server, name=name, original=address, definition=definition
            )
            found.setdefault(name, resource)
    return found


def _build_patterns(
    templates: Mapping[str, CatalogResource],
) -> list[tuple[UriTemplate, str, CatalogResource]]:
    """Return the parsed templates, most specific first."""
    patterns: list[tuple[UriTemplate, str, CatalogResource]] = []
    for name, resource in templates.items():
        template = UriTemplate.parse(name)
        if template is None:
            shown = escape_invisible_except(name[:80])
            logger.debug("%s: the URI template is too large and is not matched: %s…", resource.server, shown)
        else:
            patterns.append((template, resource.server, resource))
    return sorted(patterns, key=lambda entry: -entry[0].literal)


def _collect_prompts(offered: Sequence[tuple[ServerResources, bool]]) -> dict[str, CatalogResource]:
    found: dict[str, CatalogResource] = {}
    for offer, prefix in sorted(offered, key=lambda entry: not entry[1]):  # a prefixed name never changes
        _add_prompts(offer, found, prefix=prefix)
    order = {offer.server: position for position, (offer, _) in enumerate(offered)}
    return dict(sorted(found.items(), key=lambda entry: order[entry[1].server]))


def _add_prompts(offer: ServerResources, found: dict[str, CatalogResource], *, prefix: bool) -> None:
    for entry in offer.prompts:
        original = entry.get("name")
        if not isinstance(original, str):
            continue
        server = offer.server
        name = build_exposed_name(server, original) if prefix else build_free_name(server, original, found)
        definition = entry if name == original else {**entry, "name": name}
        prompt = CatalogResource(server=server, name=name, original=original, definition=definition)
        found.setdefault(name, prompt)


def _merge_capabilities(declared: Sequence[JsonObject]) -> JsonObject:
    """Return the union of the servers' capabilities. Lists can always change, because servers come and go."""
    merged: dict[str, Json] = {}
    if any("resources" in each for each in declared):
        inner = (each.get("resources") for each in declared)
        subscribe = any(isinstance(one, Mapping) and one.get("subscribe") is True for one in inner)
        merged["resources"] = {"listChanged": True, **({"subscribe": True} if subscribe else {})}
    if any("prompts" in each for each in declared):
        merged["prompts"] = {"listChanged": True}
    for plain in ("completions", "logging"):
        if any(plain in each for each in declared):
            merged[plain] = {}
    return merged
