"""Which tools and servers a caller can see, because some call may pass the rules; the caller's catalog."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Final

import anyio.to_thread

from fingerpost.catalog import Snapshot, build_tool_key
from fingerpost.frozen import frozen
from fingerpost.policy.paths import PatternFit, UnknownText
from fingerpost.policy.rules import (
    OPERATION,
    SCOPE_RULE,
    UNKNOWN,
    Rule,
    Subject,
    Unknown,
    add_profile_scope,
    build_rules,
    find_denial,
    is_within_scopes,
)
from fingerpost.records import Effect, HiddenTool, Json, Scope, ToolCard
from fingerpost.settings import RuleSettings

OWN_KEY_RULE: Final = "the caller's own key"
MAX_LISTED_OPERATIONS: Final = 200  # of a tool with more, an operation can be anything


def find_hidden_tools(
    rules: Sequence[RuleSettings],
    cards: Iterable[ToolCard],
    *,
    caller: str | None = None,
    profile: str | None = None,
    scopes: Sequence[Scope] = (),
) -> dict[str, HiddenTool]:
    """Return the tools that this caller may never call, by key, with the rule that denies them."""
    cards = tuple(cards)
    own = frozenset(key for scope in scopes for key in scope.personal)
    hidden = {
        card.key: HiddenTool(
            tool=card.key, rule=OWN_KEY_RULE, reason="it was not listed to this key", personal=True
        )
        for card in cards
        if card.personal and card.key not in own
    }
    if not scopes and not any(rule.verdict == "deny" for rule in rules):
        return hidden
    built = build_rules(rules)
    for card in cards:
        if card.key not in hidden:
            subjects = describe_tool(card, caller=caller, profile=profile)
            found = _find_reason(built, [one for one in subjects if _is_within(scopes, one)])
            if found is not None:
                hidden[card.key] = HiddenTool(tool=card.key, rule=found[0], reason=found[1])
    return hidden


def may_call_any(
    rules: Sequence[RuleSettings],
    server: str,
    *,
    caller: str | None = None,
    profile: str | None = None,
    scopes: Sequence[Scope] = (),
) -> bool:
    """Return whether this caller could call any tool of the server, whatever its tools are."""
    subjects = [
        Subject(server=server, effect=effect, operation=operation, caller=caller, profile=profile)
        for effect in Effect
        for operation in (None, UNKNOWN)
    ]
    return _find_reason(build_rules(rules), [one for one in subjects if _is_within(scopes, one)]) is None


def describe_tool(card: ToolCard, *, caller: str | None, profile: str | None) -> tuple[Subject, ...]:
    """Return what is known of the calls of a tool: one subject for each of its operations and effects."""
    required = frozenset(card.intelligence.parameters.required)
    own = card.effect_of(None)
    return tuple(
        Subject(
            server=card.server,
            effect=effect,
            caller=caller,
            profile=profile,
            tool=card.key,
            name=card.name,
            operation=operation,
            other_than=frozenset(card.operations),
            # Only a named operation can have another effect than the tool.
            required=required if effect is own else required | {OPERATION},
        )
        for operation, effect in dict.fromkeys(_list_variants(card))
    )


def _list_variants(card: ToolCard) -> Iterator[tuple[str | Unknown | None, Effect]]:
    """Yield the operations that a call can name, each with its effect."""
    schema = _get_operation_schema(card)
    if schema is None:
        yield from ((None, effect) for effect in sorted(card.effects))
        return
    match schema:
        case {"enum": [*listed]} if 0 < len(listed) <= MAX_LISTED_OPERATIONS:
            names = [name for name in listed if isinstance(name, str)]
            is_text = len(names) == len(listed)
        case _:
            names = [*card.operations]
            is_text = isinstance(schema, Mapping) and schema.get("type") == "string"
            yield UNKNOWN, card.effect_of(None)
    yield from ((f"{card.key}.{name}", card.effect_of(name)) for name in names)
    if not is_text or OPERATION not in card.intelligence.parameters.required:
        yield None, card.effect_of(None)


def _get_operation_schema(card: ToolCard) -> Json:
    """Return the schema of the argument that names the operation, or None if there is none."""
    match card.definition.get("inputSchema"):
        case {"properties": {"operation": schema}}:
            return True if schema is None else schema
        case _:
            return None


def _is_within(scopes: Sequence[Scope], subject: Subject) -> bool:
    """Return whether a call of the subject may be within all scopes."""
    if subject.tool is not UNKNOWN:
        return is_within_scopes(scopes, subject.server, subject.tool, subject.effect)
    key = UnknownText(start=build_tool_key(subject.server, ""))
    return all(
        is_within_scopes((replace(scope, tools=()),), subject.server, "", subject.effect)
        and (
            not scope.tools
            or any(key.match(pattern, exactly=True) is not PatternFit.NO for pattern in scope.tools)
        )
        for scope in scopes
    )


def _find_reason(rules: Sequence[Rule], subjects: Sequence[Subject]) -> tuple[str, str] | None:
    """Return the rule by which every call of these subjects is denied and its reason, or None."""
    if not subjects:
        return SCOPE_RULE, "you may not use it"
    last = 0
    for subject in subjects:
        index = find_denial(rules, subject)
        if index is None:
            return None
        last = max(last, index)
    return rules[last].name, rules[last].settings.reason or "a rule forbids it"


MAX_CACHED_VIEWS: Final = 100  # views

ViewKey = tuple[str | None, str | None, tuple[Scope, ...]]


@frozen
class VisibleCatalog:
    """The part of the catalog that one caller may see, and the hidden tools."""

    hidden: Mapping[str, HiddenTool]
    visible: Snapshot
    server_count: int  # servers with at least one visible tool


class VisibilityCache:
    """Views by caller and profile. Thread-safe."""

    def __init__(self, rules: Sequence[RuleSettings], bounds: Mapping[str, Scope] | None = None) -> None:
        self._lock = Lock()
        self._snapshot: Snapshot | None = None
        self._views: OrderedDict[ViewKey, VisibleCatalog] = OrderedDict()
        self.set_rules(rules, bounds or {})

    def set_rules(self, rules: Sequence[RuleSettings], bounds: Mapping[str, Scope]) -> None:
        """Replace the rules and the profiles' scopes (`bounds`)."""
        with self._lock:
            self._rules = rules
            self._bounds = bounds
            self._by_caller = any(rule.caller is not None for rule in rules)
            self._by_profile = any(rule.profile is not None for rule in rules)
            self._views.clear()

    def get_cached(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...] = ()
    ) -> VisibleCatalog | None:
        """Return the caller's view if it is cached, else None."""
        with self._lock:
            key = self._build_key(caller, profile, scopes)
            return self._views.get(key) if snapshot is self._snapshot else None

    def _build_key(self, caller: str | None, profile: str | None, scopes: tuple[Scope, ...]) -> ViewKey:
        """Return the cache key. Callers that no rule distinguishes share a key."""
        scopes = add_profile_scope(scopes, profile, self._bounds)
        bounds = tuple(scope for scope in scopes if scope.bounded)
        return (caller if self._by_caller else None, profile if self._by_profile else None, bounds)

    def get_view(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...] = ()
    ) -> VisibleCatalog:
        """Return the caller's view. The first call after a change is slow: do not use it in an event loop."""
        with self._lock:
            key = self._build_key(caller, profile, scopes)
            if snapshot is not self._snapshot:
                self._snapshot = snapshot
                self._views.clear()
            view = self._views.get(key)
            if view is None:
                view = self._views[key] = self._build_view(snapshot, *key)
            self._views.move_to_end(key)
            while len(self._views) > MAX_CACHED_VIEWS:
                self._views.popitem(last=False)
            return view

    async def compute_view(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...] = ()
    ) -> VisibleCatalog:
        """Return the caller's view, computed in a thread if it is not cached."""
        known = self.get_cached(snapshot, caller, profile, scopes)
        return known or await anyio.to_thread.run_sync(self.get_view, snapshot, caller, profile, scopes)

    def _build_view(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...]
    ) -> VisibleCatalog:
        hidden = find_hidden_tools(self._rules, snapshot.cards, caller=caller, profile=profile, scopes=scopes)
        visible = snapshot
        if hidden:
            cards = tuple(card for card in snapshot.cards if card.key not in hidden)
            visible = Snapshot(version=snapshot.version, cards=cards)
        return VisibleCatalog(
            hidden=hidden, visible=visible, server_count=len({card.server for card in visible.cards})
        )
