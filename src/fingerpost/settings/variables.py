"""Variables in the text of a server entry, and detection of secret values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fingerpost.frozen import frozen
from fingerpost.redaction import (
    is_secret_header,
    is_secret_name,
    is_secret_setting,
    register_secret,
    register_setting,
    scrub,
)
from fingerpost.settings.document import as_list, as_table
from fingerpost.settings.problems import KeyPath
from fingerpost.settings.sources import INPUT_PREFIX

# Defaults may contain variables with defaults. More levels are not useful.
_MAX_EXPANSION_DEPTH = 10

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OTHER_SCHEME = re.compile(r"(?P<scheme>[a-z][A-Za-z]*):(?!-)")
_EDITOR_FOLDERS = frozenset({".vscode", ".cursor", ".gemini", ".windsurf", ".zed", ".codex"})


@frozen
class PromptInput:
    """A value that VS Code would ask the user for."""

    description: str | None = None
    default: str | None = None


@frozen
class VariableScope:
    """The values that variables may refer to."""

    environ: Mapping[str, str] = field(repr=False)
    folder: Path  # of the file that contains the text
    home: Path
    inputs: Mapping[str, PromptInput] = field(default_factory=dict[str, PromptInput])

    @property
    def workspace(self) -> Path:
        """The project folder of a file. For `.vscode/mcp.json` it is the parent of `.vscode`."""
        return self.folder.parent if self.folder.name in _EDITOR_FOLDERS else self.folder


@frozen
class MissingVariable:
    """A variable without a value, and how to set it."""

    message: str
    fix: str


@frozen
class TakenVariable:
    """A value taken from the environment."""

    name: str
    value: str = field(repr=False)


@dataclass(slots=True)
class Expansion:
    """The expanded text, the values taken from the environment, and the missing variables."""

    text: str = ""
    taken: list[TakenVariable] = field(default_factory=list[TakenVariable])
    missing: list[MissingVariable] = field(default_factory=list[MissingVariable])

    def report_missing(self, message: str, fix: str) -> None:
        self.missing.append(MissingVariable(message=message, fix=fix))


def expand(text: str, scope: VariableScope, *, depth: int = 0) -> Expansion:
    """Return `text` with every variable replaced. Missing variables are reported and left unchanged."""
    result = Expansion()
    if depth > _MAX_EXPANSION_DEPTH:
        result.text = text
        return result
    at = 0
    while (start := text.find("${", at)) >= 0:
        end = _find_closing(text, start)
        if end is None:
            break
        if start > 0 and text[start - 1] == "$":
            result.text += text[at : start - 1] + text[start : end + 1]
        else:
            result.text += text[at:start]
            result.text += _replace_variable(text[start + 2 : end], scope, result, depth)
        at = end + 1
    result.text += text[at:]
    return result


def _find_closing(text: str, start: int) -> int | None:
    """Return the position of the brace that closes the one at `start`. Defaults may contain variables."""
    depth = 0
    at = start
    while at < len(text):
        if text.startswith("${", at):
            depth += 1
            at += 1
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return None


def _replace_variable(inside: str, scope: VariableScope, result: Expansion, depth: int) -> str:
    fixed = _replace_folder(inside, scope)
    if fixed is not None:
        return fixed
    if inside.startswith("input:"):
        return _replace_input(inside.removeprefix("input:"), scope, result)
    name, has_default, default = inside.removeprefix("env:").partition(":-")
    if not _VARIABLE_NAME.fullmatch(name):
        return _report_unknown(inside, result)
    value = scope.environ.get(name)
    if value or (value is not None and not has_default):
        result.taken.append(TakenVariable(name=name, value=value))
        return value
    if has_default:
        nested = expand(default, scope, depth=depth + 1)
        result.taken += nested.taken
        result.missing += nested.missing
        return nested.text
    message = f"needs the environment variable {name}, which is not set"
    result.report_missing(message, f"set it (export {name}=…), or write a default: ${{{name}:-…}}")
    return f"${{{inside}}}"


def _replace_folder(inside: str, scope: VariableScope) -> str | None:
    """Return the value of a variable for a folder, or None."""
    if inside in {"workspaceFolder", "workspaceRoot"}:
        return str(scope.workspace)
    if inside == "workspaceFolderBasename":
        return scope.workspace.name
    if inside == "userHome":
        return str(scope.home)
    return os.sep if inside in {"pathSeparator", "/"} else None


def _replace_input(identifier: str, scope: VariableScope, result: Expansion) -> str:
    variable = INPUT_PREFIX + re.sub(r"[^A-Za-z0-9]", "_", identifier).upper()
    if (value := scope.environ.get(variable)) is not None:
        result.taken.append(TakenVariable(name=variable, value=value))
        return value
    known = scope.inputs.get(identifier, PromptInput())
    if known.default is not None:
        return known.default
    what = f" ({known.description})" if known.description else ""
    message = f"needs the input {identifier!r}{what}, which only an editor can ask for"
    result.report_missing(message, f"set the environment variable {variable}=…")
    return f"${{input:{identifier}}}"


def _report_unknown(inside: str, result: Expansion) -> str:
    if scheme := _OTHER_SCHEME.match(inside):
        fix = f"write the value itself, or an environment variable instead of {scheme['scheme']}:"
        result.report_missing(f"uses ${{{inside}}}, which only an editor can fill in", fix)
    return f"${{{inside}}}"


_PLAIN_WORD = re.compile(r"[A-Za-z]{1,15}")
_ORDINARY_NAME = re.compile(
    r"(?:.*_)?(?:HOME|.*PATH|.*DIR|ROOT|HOST|REGION)|USER|LOGNAME|PWD|SHELL|LANG|TERM|USERPROFILE|APPDATA"
)


def register_variable_secrets(key: str, taken: Iterable[TakenVariable]) -> bool:
    """Register secret values that variables put into the entry `key`. Return whether there were any."""
    secrets = [value.value for value in taken if _is_secret(key, value)]
    for secret in secrets:
        register_secret(secret)
    return bool(secrets)


def _is_secret(key: str, taken: TakenVariable) -> bool:
    if is_secret_name(key) or is_secret_name(taken.name):
        return True
    ordinary = _ORDINARY_NAME.fullmatch(taken.name) or _PLAIN_WORD.fullmatch(taken.value)
    return ordinary is None


def register_literal_secrets(entry: Mapping[str, object]) -> None:
    """Register the literal secrets of a server entry for redaction: by name, and those of the URL."""
    for name, _, value in _iterate_named_secrets(entry):
        register_setting(name, value)
    if isinstance(url := entry.get("url"), str):
        register_url_secrets(url)


def find_literal_secrets(entry: Mapping[str, object]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the paths and values of literal secrets in an entry. References to variables are not included."""
    for _, path, value in _iterate_named_secrets(entry):
        yield path, value


def _iterate_named_secrets(entry: Mapping[str, object]) -> Iterator[tuple[str, KeyPath, str]]:
    """Yield the name that indicates a secret, its path, and its value."""
    for section, is_secret in _SECRET_NAME_CHECKS.items():
        for key, value in (as_table(entry.get(section)) or {}).items():
            if is_secret(key) and _is_literal(value):
                yield key, (section, key), str(value)
    args = as_list(entry.get("args"))
    for number, word in enumerate(args):
        name, equals, value = str(word).partition("=")
        if not name.startswith("-") or not is_secret_setting(name):
            continue
        if equals and _is_literal(value):
            yield name, ("args", number), value
        elif not equals and _is_literal(following := next(iter(args[number + 1 :]), "")):
            yield name, ("args", number + 1), str(following)


_SECRET_NAME_CHECKS: dict[str, Callable[[str], bool]] = {
    "env": is_secret_setting,
    "headers": is_secret_header,
    "oauth": is_secret_name,
}


def find_written_secrets(entry: Mapping[str, object]) -> tuple[KeyPath, ...]:
    """Return the paths of literal secrets in an entry, found by name or by form (`Bearer …`)."""
    named = [path for path, _ in find_literal_secrets(entry)]
    shaped = [path for path, text in _iterate_texts(entry) if _is_literal(text) and scrub(text) != text]
    return tuple(dict.fromkeys((*named, *shaped)))


def _iterate_texts(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    for key, inner in (as_table(value) or {}).items():
        yield from _iterate_texts(inner, (*path, key))
    for index, inner in enumerate(as_list(value)):
        yield from _iterate_texts(inner, (*path, index))


def _is_literal(value: object) -> bool:
    return isinstance(value, str) and value != "" and "${" not in value


def register_url_secrets(url: str) -> None:
    """Register the password of a URL, and query parameters with secret names."""
    try:
        parts = urlsplit(url)
        password = parts.password or ""
    except ValueError:
        return
    found = [password]
    for pair in parts.query.split("&"):
        key, _, value = pair.partition("=")
        if is_secret_name(key) or key.lower() == "key":
            found.append(value)
    for secret in found:
        if "${" not in secret:
            register_secret(secret)
            register_secret(unquote(secret))
