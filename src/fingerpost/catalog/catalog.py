"""The catalog of the tools that currently exist.

It does no I/O: listings come in, snapshots and events go out, and the caller stores pins and contacts
servers. Every change makes one new version and one `CatalogChanged` event; a listing without changes makes
neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from threading import Event
from typing import TypeVar

from fingerpost.catalog.cards import CardBuilder, RefusedDefinition, ScanStopped
from fingerpost.catalog.data_labels import infer_labels
from fingerpost.catalog.injection import (
    RULES_ID,
    Judge,
    build_look,
    build_look_alike_finding,
    is_look_alike,
    scan_instructions,
)
from fingerpost.catalog.intelligence import Overrides
from fingerpost.catalog.pins import (
    build_pin,
    build_quarantine_entry,
    build_server_key,
    build_server_pin,
    compare_with_pins,
    compute_text_fingerprint,
    get_pinned_instructions,
    get_pinned_tools,
)
from fingerpost.catalog.snapshot import CatalogDiff, Snapshot, compute_diff, link_cards
from fingerpost.catalog.tool_names import make_names_unique
from fingerpost.catalog.unavailable import (
    UnavailableTool,
    build_disabled,
    build_disabled_by_settings,
    build_quarantined,
    describe_quarantine,
)
from fingerpost.errors import ConfigError, UnknownServer, UnknownTool
from fingerpost.events import (
    CatalogChanged,
    EntryTrusted,
    EventSink,
    PinAccepted,
    ToolDropped,
    ToolQuarantined,
    ToolTrusted,
)
from fingerpost.records import (
    ChangedInstructions,
    DataLabel,
    DefinitionFinding,
    DroppedTool,
    Effect,
    FindingKind,
    Known,
    Listing,
    Pin,
    Quarantined,
    ScannedDefinition,
    Scope,
    Severity,
    Source,
    ToolCard,
    UsageProfile,
    utc_now,
)
from fingerpost.records.servers import IN_PROCESS
from fingerpost.settings.model import FlagSettings, ToolOverride

_DEFAULT_FLAGS = FlagSettings.model_construct()
_EMPTY_SNAPSHOT = Snapshot()
MAX_CALLER_SNAPSHOTS = 32  # snapshots of callers with their own keys
T = TypeVar("T")


class Catalog:
    """All tools of all servers, as cards."""

    def __init__(
        self,
        *,
        events: EventSink,
        overrides: Sequence[ToolOverride] = (),
        flags: FlagSettings = _DEFAULT_FLAGS,
        own: Collection[str] = (),
    ) -> None:
        """`own` names the built-in servers. Their tools change with the program and are not pinned."""
        self._own = frozenset(own)
        self._events = events
        self._flags = flags
        self._pins: dict[str, Pin] = {}
        self._card_builder = CardBuilder(
            Overrides(overrides),
            pins=self._pins,
            inferring=flags.inferred_intelligence,
            scanning=flags.scan_definitions,
            own=self._own,
        )
        self._unprefixed: set[str] = set()  # servers whose tools keep their own names
        self._cards: dict[str, dict[str, ToolCard]] = {}  # by server, then by key; includes quarantined tools
        self._origins: dict[str, Listing] = {}  # the last listing of each server, without its tools
        self._dropped: dict[str, tuple[DroppedTool, ...]] = {}
        # By server and key.
        self._disabled_in_settings: dict[str, dict[str, ToolCard]] = {}
        self._new_pins: dict[str, Pin] = {}  # not stored yet, by key
        self._quarantined: dict[str, Quarantined] = {}
        self._disabled_tools: Mapping[str, str] = {}  # tools disabled by a person, with the reason
        self._disabled_servers: Mapping[str, str] = {}
        # Servers that have pins under another entry only, and those that were trusted all the same.
        self.changed_entries: frozenset[str] = frozenset()
        self.trusted_entries: frozenset[str] = frozenset()
        self._announced: dict[str, str] = {}  # the last changed fingerprint that was reported, by key
        # Counts changes of what cards are made of besides definitions: cards made before one are outdated.
        self.card_rules_version = 0
        self._version = 0
        self._snapshot = self._full_snapshot = Snapshot()
        self._outdated = False
        self._caller_snapshots: dict[frozenset[str], Snapshot] = {}  # by the tools listed for a caller's key

    @property
    def snapshot(self) -> Snapshot:
        """The tools visible to all callers. The same object is returned until something changes.

        Tools listed only for a caller's key are in `full_snapshot`.
        """
        self._rebuild_snapshots()
        return self._snapshot

    @property
    def full_snapshot(self) -> Snapshot:
        """The snapshot including tools of single callers. Use it only where these are filtered by caller."""
        self._rebuild_snapshots()
        return self._full_snapshot

    def get_snapshot_for(self, scopes: Iterable[Scope]) -> Snapshot:
        """Return the snapshot with the personal tools that these scopes name."""
        if self.full_snapshot is self._snapshot:
            return self._snapshot
        personal = frozenset(key for scope in scopes for key in scope.personal)
        if not personal:
            return self._snapshot
        seen = self._caller_snapshots.get(personal)
        if seen is None:
            if len(self._caller_snapshots) >= MAX_CALLER_SNAPSHOTS:
                self._caller_snapshots.clear()
            cards = tuple(
                card for card in self._full_snapshot.cards if not card.personal or card.key in personal
            )
            seen = self._caller_snapshots[personal] = Snapshot(version=self._version, cards=cards)
        return seen

    def _rebuild_snapshots(self) -> None:
        if not self._outdated:
            return
        cards = [card for server in self._cards for card in self._get_listed(server).values()]
        named = make_names_unique(sorted(cards, key=lambda card: card.key), self._unprefixed)
        common = link_cards([card for card in named if not card.personal])
        self._snapshot = self._full_snapshot = Snapshot(version=self._version, cards=common)
        if len(common) < len(named):
            personal = tuple(card for card in named if card.personal)
            self._full_snapshot = Snapshot(version=self._version, cards=(*common, *personal))
        self._caller_snapshots.clear()
        self._outdated = False

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """Tools whose definition differs from the pinned one, by key."""
        return tuple(self._quarantined[key] for key in sorted(self._quarantined))

    @property
    def findings(self) -> tuple[ScannedDefinition, ...]:
        """What the scan found in the definitions and instructions of all servers, by key."""
        found = [
            ScannedDefinition(tool=key, server=server, held=key in self._quarantined, finding=finding)
            for server, cards in self._cards.items()
            for key, card in cards.items()
            for finding in card.findings
        ]
        held = {changed.server for changed in self.changed_instructions}
        found += [
            ScannedDefinition(
                tool=build_server_key(server), server=server, held=server in held, finding=finding
            )
            for server in self._origins
            for finding in self.get_instructions_findings(server)
        ]
        return tuple(sorted(found, key=lambda one: one.tool))

    @property
    def dropped(self) -> tuple[DroppedTool, ...]:
        """Tools that were listed but are refused or disabled."""
        return tuple(drop for server in sorted(self._dropped) for drop in self._dropped[server])

    @property
    def disabled(self) -> Snapshot:
        """Tools disabled at run time, directly or with their server."""
        if not self._disabled_tools and not self._disabled_servers:
            return _EMPTY_SNAPSHOT
        cards = (card for cards in self._cards.values() for card in cards.values() if self._is_disabled(card))
        return Snapshot(version=self._version, cards=tuple(cards))

    @property
    def unavailable(self) -> Snapshot:
        """Known tools that are not in the snapshot. `explain_unavailable` returns the reason of each."""
        cards = {entry.card.key: entry.card for entry in self._quarantined.values()}
        for off in self._disabled_in_settings.values():
            cards.update(off)
        cards.update((card.key, card) for card in self.disabled.cards)
        return Snapshot(version=self._version, cards=tuple(cards.values()))

    def explain_unavailable(self, card: ToolCard) -> UnavailableTool:
        """Return why this tool of `unavailable` is not in the snapshot. Actions of a person come first."""
        if (reason := self.get_disabled_reason(card)) is not None:
            return build_disabled(card, reason, by_server=card.key not in self._disabled_tools)
        if card.key in self._disabled_in_settings.get(card.server, {}):
            pattern = self._card_builder.overrides.get_pattern(card.key, "enabled")
            return build_disabled_by_settings(card, pattern)
        return build_quarantined(card, self._quarantined.get(card.key))

    def count_offered(self, server: str) -> int:
        """Return how many tools of this server callers can use."""
        return len(self._get_listed(server))

    def describe_quarantine(self, server: str) -> str:
        """Return why tools of this server are hidden until a person accepts them, or an empty text."""
        held = [entry for entry in self._quarantined.values() if entry.card.server == server]
        return describe_quarantine(held)

    def get_disabled_reason(self, card: ToolCard) -> str | None:
        """Return why this tool is disabled, or None if it is enabled."""
        if (reason := self._disabled_tools.get(card.key)) is not None:
            return reason
        reason = self._disabled_servers.get(card.server)
        return None if reason is None else f"its server {card.server} is {reason}"

    @property
    def judge(self) -> Judge | None:
        """What decides on suspected sentences of definitions."""
        return self._card_builder.judge

    def use_judge(self, judge: Judge) -> None:
        """Let this decide on suspected sentences of definitions from now on."""
        self.card_rules_version += 1
        self._card_builder = replace(self._card_builder, judge=judge)

    def build_cards(
        self, listing: Listing, *, outdated: bool = False, stop: Event | None = None
    ) -> tuple[ToolCard | RefusedDefinition, ...]:
        """Return the card or refusal of each definition. Known cards are returned unless they are `outdated`.

        It changes no state, so it can run in a thread. Raises `ScanStopped` soon after `stop` is set.
        """
        server, prefix = listing.server, listing.prefix
        same_names = prefix is (server not in self._unprefixed)
        same_origin = _get_origin(listing) == _get_origin(self._origins.get(server, listing))
        known = self._cards.get(server, {}) if same_names and same_origin else {}
        if outdated:
            known = {**known, **self._disabled_in_settings.get(server, {})}
        builder = self._card_builder.limit_judge(stop)
        made: list[ToolCard | RefusedDefinition] = []
        for definition in listing.definitions:
            if stop is not None and stop.is_set():
                raise ScanStopped
            one = builder.build(server, definition, known, outdated=outdated, prefix=prefix, origin=listing)
            made.append(_mark_personal(one, listing.personal))
        return tuple(made)

    def is_judged(self, server: str) -> bool:
        """Return whether the judge could judge the definitions of this server."""
        return all(card.judged for card in self._cards.get(server, {}).values())

    def scan_instructions(self, listing: Listing) -> None:
        """Scan the instructions of a server. The result is kept, so this can run in a thread before they are
        read.
        """
        is_scanned = self._flags.scan_definitions and not self._is_ours(listing.server, listing)
        if is_scanned and listing.instructions:
            scan_instructions(listing.server, listing.instructions, self.judge)

    def get_material_labels(self, server: str, method: str, name: str) -> Mapping[DataLabel, Known[bool]]:
        """Return the data labels of a resource or prompt, as of a tool `server/method` that reads it. What is
        not labelled in the settings counts as untrusted.
        """
        inferred = infer_labels(server, {"name": f"read {name}"}, Effect.READ)
        unknown = Known(True, Source.DEFAULT, "others may have written it")  # noqa: FBT003
        written = self._card_builder.overrides.find(f"{server}/{method}").labels
        return {**inferred, DataLabel.UNTRUSTED: unknown, **written}

    def use_overrides(self, overrides: Sequence[ToolOverride], listings: Iterable[Listing]) -> None:
        """Apply changed overrides of the settings to the tools of these listings, which are all there are."""
        self.card_rules_version += 1
        self._card_builder = replace(self._card_builder, overrides=Overrides(overrides))
        for listing in listings:
            self.replace_server(listing, self.build_cards(listing, outdated=True))

    def replace_server(
        self, listing: Listing, built: Sequence[ToolCard | RefusedDefinition] | None = None
    ) -> CatalogDiff:
        """Replace all tools of this server. `built` is the result of `build_cards`, if available."""
        server = listing.server
        cards: dict[str, ToolCard] = {}
        drops = list(listing.dropped)  # already reported when the list was read
        refused: list[DroppedTool] = []
        off: dict[str, ToolCard] = {}
        for made in self.build_cards(listing) if built is None else built:
            if isinstance(made, ToolCard) and made.key in cards:
                made = RefusedDefinition(made.key.partition("/")[2], "has the same name as an earlier tool")
            if isinstance(made, ToolCard):
                cards[made.key] = made
                continue
            drop = DroppedTool(server=server, name=made.name, reason=made.reason, switched_off=not made.fault)
            drops.append(drop)
            if made.fault:
                refused.append(drop)
            if made.card is not None:
                off[made.card.key] = made.card
        self._origins[server] = replace(listing, definitions=(), dropped=())
        before = set(self._dropped.get(server, ()))
        (self._unprefixed.discard if listing.prefix else self._unprefixed.add)(server)
        self._emit_dropped(drop for drop in refused if drop not in before)
        _put_or_drop(self._dropped, server, tuple(drops))
        _put_or_drop(self._disabled_in_settings, server, off)
        return self._replace(server, cards)

    def remove_server(self, server: str) -> CatalogDiff:
        """Remove this server and its tools. Their pins are kept, because the server may return."""
        for table in (self._dropped, self._disabled_in_settings, self._origins):
            table.pop(server, None)
        return self._replace(server, {})

    def learn(self, profiles: Mapping[str, UsageProfile]) -> CatalogDiff:
        """Update typical latency and size from recorded usage, by key."""
        if not self._flags.learned_intelligence:
            return CatalogDiff()
        self.card_rules_version += 1
        self._card_builder.usage.update(profiles)
        before = self._get_all_listed()
        for cards in self._cards.values():
            for key in cards.keys() & profiles.keys():
                cards[key] = self._rebuild_card(cards[key].server, cards[key])
        return self._publish_diff(compute_diff(before, self._get_all_listed()))

    def set_disabled(self, tools: Mapping[str, str], servers: Mapping[str, str]) -> CatalogDiff:
        """Disable exactly these tools (by key) and servers (by name), each with a reason."""
        before = self._get_all_listed()
        self._disabled_tools, self._disabled_servers = dict(tools), dict(servers)
        return self._publish_diff(compute_diff(before, self._get_all_listed()))

    def _is_disabled(self, card: ToolCard) -> bool:
        return card.key in self._disabled_tools or card.server in self._disabled_servers

    def use_pins(self, pins: Mapping[str, Pin], gone: Collection[str] = ()) -> CatalogDiff:
        """Set these pins and remove those in `gone`. A tool without a pin is new again.

        Call it before listings arrive, and after another process changed pins.
        """
        before = self._get_all_listed()
        self._pins.update(pins)
        for key in gone:
            self._pins.pop(key, None)
        self._rebuild_read_only({*pins, *gone})
        self._new_pins = {key: new for key, new in self._new_pins.items() if key not in pins}
        touched = {*pins, *gone}
        for server, cards in self._cards.items():
            if not touched.isdisjoint(cards) or build_server_key(server) in touched:
                self._apply_pins(server)
        return self._publish_diff(compute_diff(before, self._get_all_listed()))

    def take_new_pins(self) -> list[Pin]:
        """Return the pins of tools first seen since the last call. The caller stores them."""
        taken, self._new_pins = self._new_pins, {}
        return list(taken.values())

    def return_new_pins(self, unstored: Sequence[Pin]) -> None:
        """Put back pins that could not be stored, except where the tool has a later pin."""
        again = {pin.key: pin for pin in unstored if self._pins.get(pin.key) is pin}
        self._new_pins = again | self._new_pins

    def accept(self, key: str, by: str, *, fingerprint: str | None = None) -> Pin:
        """Accept the changed definition of a quarantined tool and return the pin. The caller stores it.

        `fingerprint` is that of the definition shown to the person. If the server has changed the definition
        since, nothing is accepted.
        """
        waiting = self._quarantined.get(key)
        if waiting is None:
            message = "no changed definition of this tool waits to be accepted"
            raise self._build_unknown_tool_error(key, message)
        if fingerprint is not None and fingerprint != waiting.card.fingerprint:
            message = f"{key} has changed again since it was shown"
            raise ConfigError(message, hint="Review the new difference and accept it.")
        before = self._get_all_listed()
        accepted = build_pin(waiting.card, at=utc_now(), accepted_by=by)
        self._pins[key] = accepted
        self._events.emit(PinAccepted(tool=key, fingerprint=accepted.fingerprint, accepted_by=by))
        self._apply_pins(waiting.card.server)
        self._publish_diff(compute_diff(before, self._get_all_listed()))
        return accepted

    def set_read_only(self, key: str, by: str, *, fingerprint: str, only_reads: bool = True) -> Pin:
        """Mark this definition of a tool as read-only, or remove the mark. Return the pin, which the caller
        stores.

        The mark is valid only for the definition with this fingerprint.
        """
        card = self._cards.get(key.partition("/")[0], {}).get(key) or self.full_snapshot.get(key)
        if card is None or key in self._quarantined:
            raise self._build_unknown_tool_error(key, "no tool of this name is offered")
        if fingerprint != card.fingerprint:
            message = f"{key} has changed since it was shown"
            raise ConfigError(message, hint="Review the tool as it is now, then mark it again.")
        before = self._get_all_listed()
        first = self._pins.get(key) or build_pin(card, at=utc_now())
        kept = self._pins[key] = replace(first, only_reads=by if only_reads else None)
        self._new_pins.pop(key, None)
        self._rebuild_read_only({key})
        self._events.emit(
            ToolTrusted(tool=key, fingerprint=kept.fingerprint, only_reads=only_reads, decided_by=by)
        )
        self._publish_diff(compute_diff(before, self._get_all_listed()))
        return kept

    def _rebuild_read_only(self, keys: Collection[str]) -> None:
        """Rebuild the cards whose read-only mark was set or removed."""
        for key in keys:
            found = self._pins.get(key)
            read_only_mark = (
                None if found is None or found.only_reads is None else (found.fingerprint, found.only_reads)
            )
            if self._card_builder.read_only_marks.get(key) == read_only_mark:
                continue
            self.card_rules_version += 1
            if read_only_mark is None:
                del self._card_builder.read_only_marks[key]
            else:
                self._card_builder.read_only_marks[key] = read_only_mark
            for server, cards in self._cards.items():
                if key in cards:
                    cards[key] = self._rebuild_card(server, cards[key])

    def _rebuild_card(self, server: str, card: ToolCard) -> ToolCard:
        made = self._card_builder.build(
            server,
            card.definition,
            {card.key: card},
            outdated=True,
            prefix=server not in self._unprefixed,
            origin=self._origins.get(server),
        )
        return replace(made, personal=card.personal) if isinstance(made, ToolCard) else card

    def _apply_pins(self, server: str) -> frozenset[str]:
        """Pin new tools of this server, quarantine changed ones, release those that match their pins. Return
        the servers for which this must be done now, too.
        """
        if not self._flags.pins or server in self._own:
            return frozenset()
        later = self._mark_look_alikes(server)
        found = compare_with_pins(self._cards.get(server, {}).values(), self._pins)
        server_pin = self._pins.get(build_server_key(server))
        first: list[ToolCard] = []
        waiting: list[Quarantined] = []
        now = utc_now()
        reviewed = self._reviews_new(server)
        since = now if server_pin is None else server_pin.pinned_at
        accepted: list[ToolCard] = []
        for card in found.accepted:
            pin = self._pins[card.key]
            if card.suspicious and pin.accepted_by is None:
                waiting.append(Quarantined(card=card, pin=pin))
            else:
                accepted.append(card)
        for card in found.new:
            if (
                card.suspicious
                or (reviewed and not card.personal)
                or (server_pin is not None and self._is_new_on_known_server(card, server_pin))
            ):
                waiting.append(build_quarantine_entry(card, since=since, reviewed=reviewed))
            else:
                first.append(card)
        for card in first:
            self._add_new_pin(build_pin(card, at=now))
        for card in (*first, *accepted):  # a tool whose pin was removed is new and may be in quarantine
            self._quarantined.pop(card.key, None)
            self._announced.pop(card.key, None)
        self._note_clean((*first, *accepted))
        self._pin_server(server, server_pin, {card.name for card in (*first, *accepted)})
        for entry in (*found.changed, *waiting):
            key, seen = entry.card.key, entry.card.fingerprint
            self._quarantined[key] = entry
            if self._announced.get(key) != seen:
                self._announced[key] = seen
                reasons = tuple(dict.fromkeys(finding.reason for finding in entry.card.findings))
                self._events.emit(
                    ToolQuarantined(tool=key, pinned=entry.pin.fingerprint, seen=seen, findings=reasons)
                )
        return later

    def _note_clean(self, cards: Iterable[ToolCard]) -> None:
        """Note at the pins in which of these definitions the present rules find nothing. What the judge could
        not judge is scanned again.
        """
        if self._flags.scan_definitions:
            for card in cards:
                pin = self._pins[card.key]
                clean = card.judged and not card.findings and pin.definition == card.definition
                if clean and pin.clean_by != RULES_ID:
                    self._add_new_pin(replace(pin, clean_by=RULES_ID))

    def _mark_look_alikes(self, server: str) -> frozenset[str]:
        """Add a finding to tools of this server whose names look like those of other servers. Return the
        servers with such tools that were known later than those of this server, and have no finding yet.
        """
        cards = self._cards.get(server, {})
        if not self._flags.scan_definitions or not cards:
            return frozenset()
        others = self._group_others_by_look(server)
        later: set[str] = set()
        for key, card in cards.items():
            kept = tuple(found for found in card.findings if found.kind is not FindingKind.LOOK_ALIKE)
            for other in others.get(build_look(card.name), ()):
                if not is_look_alike(card.name, other.name):
                    continue
                if not self._was_known_before(card, other):
                    kept = (*kept, build_look_alike_finding(card.name, other.key))
                    break
                later.add(other.server)
            if kept != card.findings:
                cards[key] = replace(card, findings=kept)
        return frozenset(later)

    def _group_others_by_look(self, server: str) -> Mapping[str, Sequence[ToolCard]]:
        """Return the tools of other servers that are not suspicious, by how their names look."""
        found: dict[str, list[ToolCard]] = {}
        for name, cards in self._cards.items():
            if name != server:
                for card in cards.values():
                    if not card.suspicious:
                        found.setdefault(build_look(card.name), []).append(card)
        return found

    def _was_known_before(self, card: ToolCard, other: ToolCard) -> bool:
        """Return whether this tool was pinned before the other: at a start, any server can be listed first.
        Built-in tools are not pinned, and known before all others.
        """
        if other.server in self._own:
            return False
        pin, other_pin = self._pins.get(card.key), self._pins.get(other.key)
        return pin is not None and (other_pin is None or pin.pinned_at < other_pin.pinned_at)

    def _reviews_new(self, server: str) -> bool:
        """Return whether tools of this server without a pin wait for review, also if the server is new."""
        origin = self._origins.get(server)
        if origin is None or origin.package == IN_PROCESS:
            return False
        return self._flags.review_new if origin.review_new is None else origin.review_new

    def _is_new_on_known_server(self, card: ToolCard, server_pin: Pin) -> bool:
        """Return whether a known server offers this tool for the first time, so that it needs review.

        A tool listed only for a caller's key is visible only to that caller and needs no review.
        """
        origin = self._origins.get(card.server)
        reviewed = origin is not None and origin.new_tools == "review"
        known = get_pinned_tools(server_pin)  # none: so far it had nothing but instructions
        return reviewed and not card.personal and bool(known) and card.name not in known

    def _pin_server(self, server: str, server_pin: Pin | None, names: Collection[str]) -> None:
        """Pin the names of the server's tools, and its instructions when it is first seen."""
        if server_pin is None:
            if names or self._get_raw_instructions(server):
                trusted = "" if self._reviews_new(server) else self._get_raw_instructions(server)
                self._add_new_pin(build_server_pin(server, trusted, names, at=utc_now()))
                if server in self.changed_entries:
                    self.changed_entries = self.changed_entries - {server}
                    self.trusted_entries = self.trusted_entries | {server}
                    self._events.emit(EntryTrusted(server=server, tools=tuple(sorted(names))))
        elif not get_pinned_tools(server_pin).issuperset(names):
            tools = sorted(get_pinned_tools(server_pin).union(names))
            self._add_new_pin(replace(server_pin, definition={**server_pin.definition, "tools": tools}))

    def _add_new_pin(self, pin: Pin) -> None:
        self._pins[pin.key] = self._new_pins[pin.key] = pin

    def _get_raw_instructions(self, server: str) -> str:
        origin = self._origins.get(server)
        return "" if origin is None else origin.instructions or ""

    def get_instructions(self, server: str) -> str:
        """Return the server's instructions, or an empty string if they changed and were not accepted."""
        changed = self._find_changed_instructions(server) is not None
        return "" if changed else self._get_raw_instructions(server)

    @property
    def changed_instructions(self) -> tuple[ChangedInstructions, ...]:
        """Changed instructions that wait for acceptance, by server."""
        found = (self._find_changed_instructions(server) for server in sorted(self._origins))
        return tuple(one for one in found if one is not None)

    def _find_changed_instructions(self, server: str) -> ChangedInstructions | None:
        if not self._checks_instructions(server):
            return None
        findings = self.get_instructions_findings(server)
        serious = any(each.severity is Severity.SERIOUS for each in findings)
        if self._knows_instructions(server) and not serious:
            return None
        server_pin = self._pins.get(build_server_key(server))
        instructions = self._get_raw_instructions(server)
        return ChangedInstructions(
            server=server,
            before="" if server_pin is None else get_pinned_instructions(server_pin),
            after=instructions,
            fingerprint=compute_text_fingerprint(instructions),
            findings=findings,
        )

    def _checks_instructions(self, server: str) -> bool:
        return self._flags.pins and not self._is_ours(server, self._origins.get(server))

    def _is_ours(self, server: str, origin: Listing | None) -> bool:
        """Return whether the program itself has this server."""
        return server in self._own or (origin is not None and origin.package == IN_PROCESS)

    def _knows_instructions(self, server: str) -> bool:
        """Return whether the instructions are those pinned, or those of a server seen for the first time."""
        server_pin = self._pins.get(build_server_key(server))
        if server_pin is None:
            return not self._get_raw_instructions(server) or not self._reviews_new(server)
        return self._get_raw_instructions(server) == get_pinned_instructions(server_pin)

    def get_instructions_findings(self, server: str) -> tuple[DefinitionFinding, ...]:
        """Return what the scan finds in the instructions, unless a person has accepted them."""
        if not self._flags.scan_definitions or self._is_ours(server, self._origins.get(server)):
            return ()
        server_pin = self._pins.get(build_server_key(server))
        if server_pin is not None and server_pin.accepted_by is not None and self._knows_instructions(server):
            return ()
        return scan_instructions(server, self._get_raw_instructions(server), self.judge)

    def accept_instructions(self, server: str, by: str, *, fingerprint: str) -> Pin:
        """Accept the server's current instructions and return the pin. The caller stores it."""
        waiting = self._find_changed_instructions(server)
        server_pin = self._pins.get(build_server_key(server))
        if waiting is None:
            raise UnknownServer(f"{server}: no changed instructions wait to be accepted")
        if fingerprint != waiting.fingerprint:
            message = f"the instructions of {server} have changed again since they were shown"
            raise ConfigError(message, hint="Review the new difference and accept it.")
        known = frozenset[str]() if server_pin is None else get_pinned_tools(server_pin)
        accepted = build_server_pin(server, waiting.after, known, at=utc_now(), accepted_by=by)
        self._pins[accepted.key] = accepted
        self._events.emit(PinAccepted(tool=accepted.key, fingerprint=accepted.fingerprint, accepted_by=by))
        return accepted

    def _replace(self, server: str, cards: dict[str, ToolCard]) -> CatalogDiff:
        before = self._get_listed(server)
        for key in self._cards.get(server, {}):
            self._quarantined.pop(key, None)
        _put_or_drop(self._cards, server, cards)
        later = self._apply_pins(server)
        for other in later:
            before |= self._get_listed(other)
            self._apply_pins(other)
        after = {key: card for name in (server, *later) for key, card in self._get_listed(name).items()}
        return self._publish_diff(compute_diff(before, after))

    def _publish_diff(self, diff: CatalogDiff) -> CatalogDiff:
        if diff:
            self._version += 1
            self._outdated = True
            self._events.emit(
                CatalogChanged(
                    catalog_version=self._version,
                    added=diff.added,
                    removed=diff.removed,
                    changed=diff.changed,
                )
            )
        return diff

    def _get_listed(self, server: str) -> dict[str, ToolCard]:
        if server in self._disabled_servers:
            return {}
        away = self._quarantined.keys() | self._disabled_tools.keys()
        return {key: card for key, card in self._cards.get(server, {}).items() if key not in away}

    def _get_all_listed(self) -> dict[str, ToolCard]:
        return {key: card for server in self._cards for key, card in self._get_listed(server).items()}

    def _emit_dropped(self, drops: Iterable[DroppedTool]) -> None:
        for drop in drops:
            self._events.emit(ToolDropped(server=drop.server, tool=drop.name, reason=drop.reason))

    def _build_unknown_tool_error(self, key: str, message: str) -> UnknownTool:
        near = self.snapshot.near(key)
        hint = f"Did you mean {', '.join(near)}?" if near else None
        return UnknownTool(f"{key}: {message}", hint=hint)


def _put_or_drop(table: dict[str, T], server: str, value: T) -> None:
    """Set the value of a server; an empty one is removed."""
    if value:
        table[server] = value
    else:
        table.pop(server, None)


def _get_origin(listing: Listing) -> tuple[str | None, bool]:
    """Return the properties of the server that a card depends on."""
    return listing.package, listing.trust_hints


def _mark_personal(
    built: ToolCard | RefusedDefinition, personal: frozenset[str]
) -> ToolCard | RefusedDefinition:
    if isinstance(built, ToolCard) and built.personal is not (built.name in personal):
        return replace(built, personal=built.name in personal)
    return built
