"""Builds a card from a tool definition, or the reason for its refusal, and formats cards for models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from threading import Event
from typing import Final, cast

from fingerpost.catalog.certainty import find_doubt, find_parameter_doubt
from fingerpost.catalog.data_labels import infer_labels, infer_reading_labels
from fingerpost.catalog.effects import collect_parameters, judge_effect
from fingerpost.catalog.injection import RULES_ID, Judge, scan_definition
from fingerpost.catalog.intelligence import (
    Overrides,
    WrittenOverride,
    gather_intelligence,
    is_known_read,
    is_known_to_act,
)
from fingerpost.catalog.pins import compute_fingerprint
from fingerpost.catalog.tool_names import (
    build_exposed_name,
    build_own_name,
    build_tool_key,
    escape_invisible,
    escape_invisible_except,
)
from fingerpost.errors import FingerpostError, ModelUnavailable
from fingerpost.frozen import frozen
from fingerpost.records import (
    DefinitionFinding,
    Effect,
    Json,
    JsonObject,
    Known,
    Listing,
    Pin,
    RetryRule,
    Source,
    ToolCard,
    UsageProfile,
    find_json_problem,
)
from fingerpost.records.servers import IN_PROCESS, OWN_PROGRAM
from fingerpost.schemas import MAP_KEYWORDS

MAX_NAME_LENGTH: Final = 1024
MAX_JUDGED_SENTENCES: Final = 1000  # of one listing: the judge takes some milliseconds for each
_NO_CARDS: Final[Mapping[str, ToolCard]] = {}
_NOT_CACHED: Final = Known(0.0, Source.DEFAULT, "reads are not cached")
_RETRY_RULE: Final = RetryRule()


@frozen(kw_only=False)
class RefusedDefinition:
    """Why a definition has no card. `fault` is false if the tool is disabled in the settings."""

    name: str  # with invisible characters escaped, for display
    reason: str
    fault: bool = True
    card: ToolCard | None = None  # the card it would have if it were enabled


class ScanStopped(Exception):
    """Building cards was stopped, because their listing is not needed any more."""


@frozen(kw_only=False)
class CardBuilder:
    """Builds cards with the current overrides and usage data."""

    overrides: Overrides
    inferring: bool = True
    scanning: bool = True
    own: frozenset[str] = frozenset()  # built-in servers, whose definitions are not scanned
    judge: Judge | None = None  # decides on suspected sentences
    pins: Mapping[str, Pin] = field(default_factory=dict[str, Pin])
    usage: dict[str, UsageProfile] = field(default_factory=dict[str, UsageProfile])
    # By key: the fingerprint of a definition that a person marked as read-only, and who marked it.
    read_only_marks: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def limit_judge(self, stop: Event | None = None, sentences: int = MAX_JUDGED_SENTENCES) -> CardBuilder:
        """Return a builder whose judge can be asked for this many sentences, and for none once `stop` is set:
        then it raises `ScanStopped`.
        """
        if (judge := self.judge) is None:
            return self
        left = sentences

        def judge_some(texts: Sequence[str]) -> Sequence[float | None]:
            nonlocal left
            if stop is not None and stop.is_set():
                raise ScanStopped
            if len(texts) > left:
                message = "this listing has too many suspected sentences"
                raise ModelUnavailable(message, model="judge")
            left -= len(texts)
            return judge(texts)

        return replace(self, judge=judge_some)

    def build(
        self,
        server: str,
        definition: object,
        known: Mapping[str, ToolCard] = _NO_CARDS,
        *,
        outdated: bool = False,
        prefix: bool = True,
        origin: Listing | None = None,
    ) -> ToolCard | RefusedDefinition:
        """Return the card of this definition, or why it is refused. An unchanged card in `known` is returned
        as it is; if they are `outdated`, only what the scan found in it is kept.

        Without `prefix` the tool keeps its own name. Invalid definitions are refused and never raise.
        `origin` identifies the server and says which of its hints are trusted.
        """
        if (refusal := _find_refusal(definition)) is not None:
            return refusal
        tool = cast("JsonObject", definition)
        name = str(tool["name"])
        key = build_tool_key(server, name)
        fingerprint = compute_fingerprint(tool)
        old = known.get(key)
        scanned = None
        if old is not None and old.fingerprint == fingerprint and old.definition == tool:
            if old.judged and not outdated:
                return old
            scanned = (old.findings, old.judged) if outdated else None
        shown = (build_exposed_name if prefix else build_own_name)(server, name)
        return self._build_new(server, name, shown, key, fingerprint, tool, origin, scanned)

    def _build_new(
        self,
        server: str,
        name: str,
        shown: str,
        key: str,
        fingerprint: str,
        tool: JsonObject,
        origin: Listing | None,
        scanned: tuple[tuple[DefinitionFinding, ...], bool] | None,
    ) -> ToolCard | RefusedDefinition:
        findings, judged = self._scan(server, key, tool) if scanned is None else scanned
        written = self.overrides.find(key)
        described = tool.get("description")
        description = described if isinstance(described, str) else ""
        effect, unsure = self._judge_effect(key, fingerprint, name, tool, written, origin)
        labels = infer_labels(server, tool, effect.value)
        reading = infer_reading_labels(server, tool, written.fields.operations or {})
        card = ToolCard(
            key=key,
            server=server,
            name=name,
            exposed_name=shown,
            definition=tool,
            description=description if written.fields.description is None else written.fields.description,
            effect=effect,
            fingerprint=fingerprint,
            intelligence=gather_intelligence(
                server,
                name,
                description,
                tool,
                effect.value,
                inferring=self.inferring,
                usage=self.usage.get(key),
                written=written,
            ),
            instructions=written.instructions,
            operations=written.fields.operations or {},
            # Only a person knows whether a cached result is valid.
            cache_seconds=written.override(_NOT_CACHED, "cache_seconds"),
            retry=RetryRule(
                retries=written.override(_RETRY_RULE.retries, "retries"),
                conditions=written.override(_RETRY_RULE.conditions, "retry_on"),
                repeatable=written.override(_RETRY_RULE.repeatable, "repeatable"),
            ),
            doubt=unsure,
            labels={**reading, **labels, **written.labels},
            reading_labels=frozenset(reading.keys() - labels.keys() - written.labels.keys()),
            findings=findings,
            judged=judged,
        )
        if written.fields.enabled is False:
            reason = f"switched off: {written.get_reason('enabled')}"
            return RefusedDefinition(escape_invisible_except(name), reason, fault=False, card=card)
        return card

    def _scan(self, server: str, key: str, tool: JsonObject) -> tuple[tuple[DefinitionFinding, ...], bool]:
        """Return the findings in a definition, and whether the judge could judge all that it was asked."""
        pin = self.pins.get(key)
        known_clean = pin is not None and pin.clean_by == RULES_ID and pin.definition == tool
        if not self.scanning or server in self.own or known_clean:
            return (), True
        if (judge := self.judge) is None:
            return scan_definition(server, tool), True
        judged = True

        def judge_if_possible(texts: Sequence[str]) -> Sequence[float | None]:
            nonlocal judged
            try:
                return judge(texts)
            except FingerpostError:
                judged = False
                raise

        findings = scan_definition(server, tool, judge_if_possible)
        return findings, judged

    def _judge_effect(
        self,
        key: str,
        fingerprint: str,
        name: str,
        tool: JsonObject,
        written: WrittenOverride,
        origin: Listing | None,
    ) -> tuple[Known[Effect], str]:
        """Return the tool's effect, and why it is not certain that the tool only reads."""
        if written.fields.effect is not None:
            return Known(written.fields.effect, Source.WRITTEN, written.get_reason("effect")), ""
        kept = self.read_only_marks.get(key)
        if kept is not None and kept[0] == fingerprint:
            return Known(Effect.READ, Source.WRITTEN, f"{kept[1]} marked it as read-only"), ""
        effect = judge_effect(tool)
        package = None if origin is None else origin.package
        names = {parameter for parameter, _ in collect_parameters(tool.get("inputSchema")).named if parameter}
        if is_known_read(package, name, names):
            return Known(Effect.READ, Source.WRITTEN, f"shipped knowledge of {package}"), ""
        if is_known_to_act(name):
            return Known(Effect.WRITE, Source.WRITTEN, "shipped knowledge of tools with this name"), ""
        if effect.value is not Effect.READ:
            return effect, ""
        believed = origin is not None and (origin.trust_hints or package == OWN_PROGRAM)
        if believed and _has_read_only_hint(tool):
            is_ours = package in (IN_PROCESS, OWN_PROGRAM)
            return effect, "" if is_ours else find_parameter_doubt(tool, programs_only=True)
        return effect, find_doubt(tool)


def _has_read_only_hint(tool: JsonObject) -> bool:
    annotations = tool.get("annotations")
    return isinstance(annotations, Mapping) and annotations.get("readOnlyHint") is True


def _find_refusal(definition: object) -> RefusedDefinition | None:
    if not isinstance(definition, Mapping):
        return RefusedDefinition("(no name)", "is not an object")
    definition = cast("Mapping[str, object]", definition)
    name = definition.get("name")
    if not isinstance(name, str) or not name.strip():
        return RefusedDefinition("(no name)", "has no name")
    shown = escape_invisible_except(name[:80])
    if len(name) > MAX_NAME_LENGTH:
        return RefusedDefinition(shown, f"has a name of more than {MAX_NAME_LENGTH} characters")
    reason = find_json_problem(definition) or _find_task_fault(definition.get("execution"))
    return None if reason is None else RefusedDefinition(shown, reason)


def _find_task_fault(execution: object) -> str | None:
    """Return why the tool cannot be called, or None: one that requires tasks refuses a plain call."""
    if not isinstance(execution, Mapping):
        return None
    if cast("Mapping[str, object]", execution).get("taskSupport") != "required":
        return None
    return (
        'can only be run as a task (its taskSupport is "required"), which Fingerpost does not do; '
        'with "optional" it could be called'
    )


MAX_DESCRIPTION_LENGTH: Final = 4000  # characters; the beginning says what a tool does
_TEXT_KEYWORDS: Final = frozenset({"description", "title", "$comment"})


def build_model_definition(card: ToolCard) -> JsonObject:
    """Return the tool definition for a model, in the OpenAI format."""
    return build_function(card.exposed_name, card.description, card.definition.get("inputSchema"))


def build_function(name: str, description: str, schema: Json) -> JsonObject:
    """Return a tool in the OpenAI format. Invisible characters in the description are escaped."""
    function: JsonObject = {
        "name": name,
        "description": _shorten_description(description),
        "parameters": _build_parameters(schema),
    }
    return {"type": "function", "function": function}


def make_text_visible(part: Json, *, named: bool = False) -> Json:
    """Return a definition or schema with invisible characters escaped in its texts. Everything else is
    unchanged.

    `named` is true if the keys of this part are parameter names and not schema keywords.
    """
    if isinstance(part, Mapping):
        made: dict[str, Json] = {
            key: escape_invisible(value)
            if isinstance(value, str) and key in _TEXT_KEYWORDS and not named
            else make_text_visible(value, named=key in MAP_KEYWORDS and not named)
            for key, value in part.items()
        }
        return part if all(made[key] is part[key] for key in part) else made
    if isinstance(part, list | tuple):
        items = [make_text_visible(item) for item in part]
        return part if all(one is other for one, other in zip(items, part, strict=True)) else items
    return part


def _shorten_description(description: str) -> str:
    text = escape_invisible(description[: MAX_DESCRIPTION_LENGTH + 1])
    return text if len(text) <= MAX_DESCRIPTION_LENGTH else text[: MAX_DESCRIPTION_LENGTH - 1].rstrip() + "…"


def _build_parameters(schema: Json) -> JsonObject:
    if not isinstance(schema, Mapping) or not schema:
        return {"type": "object", "properties": {}}
    visible = make_text_visible(schema)
    schema = visible if isinstance(visible, Mapping) else schema
    kind = schema.get("type")
    if kind == "object":
        return schema
    if kind is None or (isinstance(kind, list | tuple) and "object" in kind):
        return {**schema, "type": "object"}
    return {"type": "object", "properties": {}}
