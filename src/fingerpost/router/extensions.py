"""Extensions: the scorers, rules and servers of installed packages, found by their entry points.

They are code of other people, so one is loaded only if the settings name it. A scorer or a server that cannot
be loaded is left out. A rule that cannot be loaded is an error: without it, what it denies would run.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from inspect import iscoroutinefunction
from typing import Final, Literal, cast

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.narrow.scorer import AddedScorer, Scorer, check_scorers, clean_line
from fingerpost.policy.rules import PolicyRule
from fingerpost.records import ServerSpec
from fingerpost.servers import Server
from fingerpost.settings import ExtensionSettings

logger = logging.getLogger("fingerpost.extensions")

ExtensionKind = Literal["scorers", "rules", "servers"]
KINDS: Final[tuple[ExtensionKind, ...]] = ("scorers", "rules", "servers")
MAX_RULE_LABEL_LENGTH: Final = 80
MAX_ERROR_LENGTH: Final = 300
_SEPARATORS: Final = re.compile(r"[-_.]+")


@frozen
class Extension:
    """An entry point of an installed package, or one that is enabled and not installed."""

    kind: ExtensionKind
    name: str  # `package:name`, as the settings name it
    version: str = ""  # of the package
    enabled: bool = False
    error: str = ""  # why it cannot be used, if it is enabled

    @property
    def group(self) -> str:
        """The group of its entry point."""
        return f"fingerpost.{self.kind}"


class Extensions:
    """The extension points of one router: what the program gave, and what the enabled packages add."""

    def __init__(
        self,
        scorers: Iterable[Scorer] = (),
        rules: Iterable[PolicyRule] = (),
        servers: Iterable[ServerSpec] = (),
    ) -> None:
        """Check what the program gave. Raises `ConfigError`."""
        self.scorers: tuple[AddedScorer, ...] = check_scorers(scorers)
        self.rules: tuple[PolicyRule, ...] = check_rules(rules)
        self.servers: tuple[ServerSpec, ...] = tuple(servers)
        self.found: tuple[Extension, ...] = ()  # those of packages

    def load(self, settings: ExtensionSettings) -> None:
        """Load the enabled extensions. Blocks. Raises `ConfigError` if a rule cannot be loaded."""
        if not any(getattr(settings, kind) for kind in KINDS):
            return
        self.load_all(settings)
        for extension in self.found:
            if not extension.error:
                continue
            message = f"the extension {extension.name} of extensions.{extension.kind} cannot be used"
            if extension.kind == "rules":
                message = f"{message}: {extension.error}"
                hint = "Repair or install its package, or remove it from extensions.rules."
                raise ConfigError(message, hint=hint)
            logger.warning("%s, so it is left out: %s", message, extension.error)

    def load_all(self, settings: ExtensionSettings) -> None:
        """Load the enabled extensions and list all installed ones in `found`, with the errors. Blocks."""
        found: list[Extension] = []
        for kind in KINDS:
            enabled = {_normalize_name(name): name for name in getattr(settings, kind)}
            for name, entry in _find_entries(kind):
                version = "" if entry.dist is None else entry.dist.version
                extension = Extension(kind=kind, name=name, version=version)
                if (written := enabled.pop(_normalize_name(name), None)) is not None:
                    extension = replace(extension, name=written, enabled=True, error=self._add(kind, entry))
                found.append(extension)
            error = f"no installed package has this entry point in fingerpost.{kind}"
            found += [Extension(kind=kind, name=name, enabled=True, error=error) for name in enabled.values()]
        self.found = tuple(found)

    def _add(self, kind: ExtensionKind, entry: EntryPoint) -> str:
        """Load an extension and add it. Return why this failed, or an empty text."""
        try:
            made = cast("Callable[[], object]", entry.load())()
            if kind == "scorers":
                given = [added.scorer for added in self.scorers]
                self.scorers = check_scorers([*given, cast("Scorer", made)])
            elif kind == "rules":
                self.rules = check_rules([*self.rules, cast("PolicyRule", made)])
            else:
                self.servers = (*self.servers, self._build_spec(entry.name, made))
        except (Exception, SystemExit) as error:
            logger.debug("an extension could not be loaded: %s", entry.value, exc_info=error)
            return clean_line(f"{type(error).__name__}: {error}", MAX_ERROR_LENGTH)
        return ""

    def _build_spec(self, name: str, made: object) -> ServerSpec:
        if not isinstance(made, ServerSpec):
            if not callable(getattr(made, "run", None)):
                message = f"its factory returned {type(made).__name__}: no ServerSpec and no MCP server"
                raise ConfigError(message)
            made = Server.in_process(name, made)
        if any(spec.name == made.name for spec in self.servers):
            raise ConfigError(f"there is a server {made.name} already")
        return made


def check_rules(rules: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    """Return the rules. Raises `ConfigError` if one cannot be used."""
    found: dict[str, PolicyRule] = {}
    for rule in rules:
        label: object = getattr(rule, "label", None)
        if isinstance(rule, type):
            message = f"rules takes objects, and {rule.__name__} is a class"
            raise ConfigError(message, hint=f"Write {rule.__name__}().")
        if not callable(getattr(rule, "judge", None)):
            message = f"{type(rule).__name__} is no rule: it has no method `judge`"
            raise ConfigError(message, hint="A rule has a `label` and `judge(call, context)`.")
        if iscoroutinefunction(rule.judge):
            message = f"judge of the rule {type(rule).__name__} must not be async"
            raise ConfigError(message, hint="Write `def judge(…)`; it returns a Ruling or None.")
        if label is None:
            message = f"the rule {type(rule).__name__} has no `label`"
            raise ConfigError(message, hint=f"It is text of at most {MAX_RULE_LABEL_LENGTH} characters.")
        if not isinstance(label, str) or not label or clean_line(label, MAX_RULE_LABEL_LENGTH) != label:
            message = f"the label of the rule {type(rule).__name__} is no short line of text"
            hint = f"Give it a `label` of at most {MAX_RULE_LABEL_LENGTH} characters."
            raise ConfigError(message, hint=hint)
        if label in found:
            message = f"two rules have the label {label!r}"
            raise ConfigError(message, hint="Give each its own label: explanations show it.")
        found[label] = rule
    return tuple(found.values())


def _find_entries(kind: ExtensionKind) -> Iterator[tuple[str, EntryPoint]]:
    """Yield the entry points of a group with their names, in order."""
    found = [entry for entry in entry_points(group=f"fingerpost.{kind}") if entry.dist is not None]
    named = [(f"{entry.dist.name}:{entry.name}", entry) for entry in found if entry.dist is not None]
    yield from sorted(named, key=lambda pair: pair[0])


def _normalize_name(name: str) -> str:
    """Return the name with the package in the form in which packages are compared."""
    package, _, entry = name.partition(":")
    return f"{_SEPARATORS.sub('-', package).lower()}:{entry}"
