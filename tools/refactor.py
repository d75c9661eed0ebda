"""Rename symbols and move modules from tables, over the whole repository.

    python tools/refactor.py rename tools/renames/*.toml
    python tools/refactor.py move tools/renames/*.toml
    python tools/refactor.py files tools/renames/*.toml

A table has these sections, with names below `fingerpost.`:

    [names]       # a class, function, method, field or parameter, and its new name
    "router.shutters:Shutters" = "DisabledTools"
    "router.shutters:Shutters.switch" = "set_enabled"
    "router.shutters:Shutters.switch(wish)" = "tool_call"

    [modules]     # the new module, and those it is made of
    "router.disabled" = ["router.shutters"]

    [docstrings]  # of merged modules; else the first one's stays
    "router.disabled" = "Tools and servers that an operator has disabled."

    [files]       # a file or a folder outside the package, and its new path
    "tests/kit/routers.py" = "tests/kit/routers.py"

`rename` asks pyright for the references, so it follows types and not spellings; names that
occur in one file and mean one thing there are found in its syntax tree, which is quicker.
All references are found before the first file changes. Names in backticks follow, in the
docstrings of the same module and, for classes, in the documentation. `move` rewrites imports
and leaves their order to ruff. Run `rename` first: its table names modules by their old places.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlparse

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = "fingerpost"
CODE: Final = ("src", "tests", "benchmarks", "examples", "tools", "training")
TEXT: Final = ("*.toml", "*.md", "Makefile", "docs/**/*.md", "src/**/*.toml", "examples/**/*", ".ci/*")


@dataclass(slots=True)
class Table:
    names: dict[str, str] = field(default_factory=dict[str, str])
    modules: dict[str, str] = field(default_factory=dict[str, str])
    docstrings: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def from_files(cls, paths: Iterable[Path]) -> Table:
        table = cls()
        for path in paths:
            found = tomllib.loads(path.read_text())
            made: dict[str, list[str]] = found.pop("modules", {})
            found["modules"] = {old: new for new, olds in made.items() for old in olds}
            for section, known in (
                ("names", table.names),
                ("modules", table.modules),
                ("docstrings", table.docstrings),
                ("files", table.files),
            ):
                given: dict[str, str] = found.pop(section, {})
                if twice := known.keys() & given.keys():
                    sys.exit(f"{path}: {sorted(twice)} stand in another table, too")
                known.update(given)
            if found:
                sys.exit(f"{path}: unknown sections {sorted(found)}")
        return table


# Modules and files


def path_of(module: str) -> Path:
    """The file of a module, named from below the package."""
    base = ROOT / "src" / PACKAGE / Path(*module.split(".")) if module else ROOT / "src" / PACKAGE
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT / "src" / PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def code_files() -> Iterator[Path]:
    for folder in CODE:
        yield from sorted((ROOT / folder).rglob("*.py"))


# Renaming through pyright


@dataclass(frozen=True, slots=True)
class Place:
    """A position of the language server: from zero, columns in UTF-16 units."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Edit:
    start: Place
    end: Place
    text: str


@functools.lru_cache(maxsize=2000)
def _parse(source: str) -> ast.Module:
    return ast.parse(source)


Found = dict[Path, list[Edit]]


def find_definition(source: str, qualified: str) -> Place | None:
    """Where `Class.method(parameter)` is defined in this source."""
    match = re.fullmatch(r"([\w.]+?)(?:\((\w+)\))?", qualified)
    if match is None:
        return None
    scope: ast.AST = _parse(source)
    *outer, last = match[1].split(".")
    for name in outer:
        inner = next((node for node in _definitions(scope, name) if hasattr(node, "body")), None)
        if inner is None:
            return None
        scope = inner
    if match[2] is not None:
        function = next((node for node in _definitions(scope, last) if _is_function(node)), None)
        return None if function is None else _place_of_parameter(source, function, match[2])
    node = next(iter(_definitions(scope, last)), None)
    return None if node is None else _place_of_name(source, node, last)


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _definitions(scope: ast.AST, name: str) -> Iterator[ast.AST]:
    """What defines this name: classes and functions, then assignments, then attributes of self."""
    body: list[ast.stmt] = getattr(scope, "body", [])
    flat = list(_flatten(body))
    for node in flat:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            yield node
    for node in flat:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and target.id == name:
                yield target
        alias = getattr(node, "name", None)
        if isinstance(alias, ast.Name) and alias.id == name:  # `type X = …`
            yield alias
    if isinstance(scope, ast.ClassDef):
        for node in ast.walk(scope):
            if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store):
                yield node


def _flatten(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, those in branches included."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _flatten(node.body)
            yield from _flatten(node.orelse)


def _place_of_name(source: str, node: ast.AST, name: str) -> Place:
    line = cast("int", getattr(node, "lineno", 1))
    if isinstance(node, ast.Attribute):
        line = node.end_lineno or line
        return _place(source, line, (node.end_col_offset or 0) - len(name.encode()))
    if isinstance(node, ast.Constant):
        return _place(source, line, node.col_offset + 1)
    if isinstance(node, ast.Name | ast.arg | ast.alias):
        return _place(source, line, node.col_offset)
    text = source.splitlines()[line - 1]
    found = re.compile(rf"\b(?:class|def)\s+({re.escape(name)})\b").search(text)
    assert found is not None, (line, name)
    return _place(source, line, len(text[: found.start(1)].encode()))


def _place_of_parameter(source: str, node: ast.AST, name: str) -> Place | None:
    arguments = cast("ast.FunctionDef", node).args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    given += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    found = next((one for one in given if one.arg == name), None)
    return None if found is None else _place_of_name(source, found, name)


def _place(source: str, line: int, byte_column: int) -> Place:
    before = source.splitlines()[line - 1].encode()[:byte_column].decode()
    return Place(line - 1, len(before.encode("utf-16-le")) // 2)


class LanguageServer:
    """A pyright that answers one question at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["pyright-langserver", "--stdio"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._id = 0
        self._opened: set[Path] = set()
        root = ROOT.as_uri()
        capabilities = {
            "workspace": {"configuration": True, "workspaceFolders": True},
            "textDocument": {"rename": {"prepareSupport": False}},
        }
        self.ask(
            "initialize",
            {
                "processId": None,
                "rootUri": root,
                "workspaceFolders": [{"uri": root, "name": "root"}],
                "capabilities": capabilities,
            },
        )
        self._tell("initialized", {})
        self._wait_for_files()

    def _wait_for_files(self) -> None:
        """Until the list of source files is complete, references would be missed."""
        while True:
            message = self._receive()
            if "method" in message and "id" in message:
                self._answer(message)
            elif "source files" in str(message.get("params", {}).get("message", "")):
                return

    def rename(self, path: Path, place: Place, name: str) -> dict[Path, list[Edit]]:
        self._open(path)
        given = {
            "textDocument": {"uri": path.as_uri()},
            "position": {"line": place.line, "character": place.column},
            "newName": name,
        }
        return dict(_read_edits(self.ask("textDocument/rename", given) or {}))

    def _open(self, path: Path) -> None:
        if path in self._opened:
            return
        self._opened.add(path)
        document = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": path.read_text()}
        self._tell("textDocument/didOpen", {"textDocument": document})

    def ask(self, method: str, params: object) -> Any:
        self._id += 1
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("id") == self._id and "method" not in message:
                if "error" in message:
                    raise RuntimeError(message["error"])
                return message.get("result")
            if "method" in message and "id" in message:
                self._answer(message)

    def _answer(self, message: Mapping[str, Any]) -> None:
        result: object = None
        if message["method"] == "workspace/configuration":
            result = [{"analysis": {"diagnosticMode": "openFilesOnly"}} for _ in message["params"]["items"]]
        self._send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _tell(self, method: str, params: object) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send(self, message: object) -> None:
        stream = self._process.stdin
        assert stream is not None
        body = json.dumps(message).encode()
        stream.write(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        stream.flush()

    def _receive(self) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None
        length = 0
        while line := stream.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return json.loads(stream.read(length))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _read_edits(found: Mapping[str, Any]) -> Iterator[tuple[Path, list[Edit]]]:
    changes: dict[str, list[dict[str, Any]]] = dict(found.get("changes") or {})
    for change in found.get("documentChanges") or ():
        changes.setdefault(change["textDocument"]["uri"], []).extend(change["edits"])
    for uri, edits in changes.items():
        yield (
            Path(unquote(urlparse(uri).path)),
            [
                Edit(_read_place(edit["range"]["start"]), _read_place(edit["range"]["end"]), edit["newText"])
                for edit in edits
            ],
        )


def _read_place(found: Mapping[str, int]) -> Place:
    return Place(found["line"], found["character"])


@dataclass(frozen=True, slots=True)
class Use:
    """One place where a word is used; the kind "other" says that it may mean something else."""

    path: Path
    node: ast.AST
    kind: str


class Words:
    """Every use of the words of a table, so that clear cases need no language server."""

    def __init__(self, words: set[str]) -> None:
        self._texts = {path: path.read_text() for path in code_files()}
        self._uses: dict[str, list[Use]] = defaultdict(list)
        self._callees: dict[str, set[str]] = defaultdict(set)
        self._importers: dict[tuple[str, str], set[Path]] = defaultdict(set)
        self._defined: set[str] = set()
        self._imported: set[str] = set()
        self._bases: set[str] = set()
        for path, text in self._texts.items():
            self._read(path, _parse(text), words)
        self._foreign = _read_foreign_words(words)

    def _read(self, path: Path, tree: ast.Module, words: set[str]) -> None:
        top = {
            id(node)
            for statement in tree.body
            if isinstance(statement, ast.Assign | ast.AnnAssign)
            for node in ast.walk(statement)
        }
        for outer in ast.walk(tree):
            for node in ast.iter_child_nodes(outer):
                for word, kind in _read_words(outer, node, top):
                    if word in words:
                        self._uses[word].append(Use(path, node, kind))
                self._note(path, node)

    def _note(self, path: Path, node: ast.AST) -> None:
        if isinstance(node, ast.ImportFrom):
            self._imported.update(alias.name for alias in node.names)
            for alias in node.names:
                self._importers[node.module or "", alias.name].add(path)
        elif isinstance(node, ast.ClassDef):
            self._bases.update(ast.unparse(base).split("[")[0] for base in node.bases)
            self._defined.add(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._defined.add(node.name)
        elif isinstance(node, ast.Call):
            callee = ast.unparse(node.func).rpartition(".")[2]
            for keyword in node.keywords:
                self._callees[keyword.arg or ""].add(callee)

    def find(self, path: Path, qualified: str, name: str) -> Found | None:
        """The edits for a name whose uses are clear without types; else None."""
        if "(" in qualified:
            return self._find_parameter(path, qualified, name)
        *outer, old = qualified.split(".")
        if not outer:
            return self._find_top(path, old, name)
        if len(outer) > 1 or self._is_inherited(path, outer[0]):
            return None
        private = old.startswith("_") and not old.startswith("__") and old not in self._imported
        uses = [use for use in self._uses[old] if use.path == path or not private]
        definitions = [use for use in uses if use.kind in ("definition", "method")]
        clear = len(definitions) == 1 and all(use.kind in ("member", "method") for use in uses)
        if not clear or (not private and old in self._foreign):
            return None
        return self._edit(uses, old, name)

    def _find_top(self, path: Path, old: str, name: str) -> Found | None:
        """Follow the imports of a name at the top of a module."""
        uses: list[Use] = []
        todo, seen = [path], {path}
        while todo:
            file = todo.pop()
            for use in self._uses[old]:
                if use.path == file and use.kind == "member":
                    continue
                if use.path == file and use.kind not in ("name", "definition", "alias"):
                    return None
                if use.path == file:
                    uses.append(use)
            module = _dotted_name(file)
            package, _, last = module.rpartition(".")
            uses += [
                use
                for use in self._uses[old]
                if use.path in self._importers[package, last] and _is_attribute_of(use.node, last)
            ]
            for importer in self._importers[module, old] - seen:
                seen.add(importer)
                todo.append(importer)
        definitions = [use for use in uses if use.kind == "definition"]
        return self._edit(uses, old, name) if len(definitions) == 1 else None

    def _is_inherited(self, path: Path, owner: str) -> bool:
        tree = _parse(self._texts[path])
        found = next((node for node in _definitions(tree, owner) if isinstance(node, ast.ClassDef)), None)
        return found is None or bool(found.bases) or owner in self._bases

    def _find_parameter(self, path: Path, qualified: str, name: str) -> Found | None:
        """Clear if no call names the parameter, and no inner function has one of the same name."""
        owner, _, old = qualified.rstrip(")").partition("(")
        callees = self._callees[old]
        *outer, function = owner.split(".")
        if len(outer) > 1 or (outer and self._is_inherited(path, outer[0])):
            return None
        called = outer[-1] if function == "__init__" else function
        if called in callees or "cls" in callees or callees - self._defined or function == "__new__":
            return None
        scope: ast.AST = _parse(self._texts[path])
        for part in (*outer, function):
            scope = next(node for node in _definitions(scope, part) if hasattr(node, "body"))
        uses: list[Use] = []
        for node in ast.walk(scope):
            if isinstance(node, ast.arg) and node.arg == old:
                uses.append(Use(path, node, "definition"))
            elif isinstance(node, ast.Name) and node.id == old:
                uses.append(Use(path, node, "name"))
            elif isinstance(node, ast.Nonlocal | ast.ExceptHandler | ast.MatchAs):
                return None
        if len([use for use in uses if use.kind == "definition"]) != 1:
            return None
        return self._edit(uses, old, name)

    def _edit(self, uses: list[Use], old: str, name: str) -> Found:
        found: Found = defaultdict(list)
        for use in uses:
            found[use.path].append(_edit(self._texts[use.path], use.node, old, name))
        return dict(found)


def _is_attribute_of(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name


def _dotted_name(path: Path) -> str:
    relative = path.relative_to(ROOT / "src" if path.is_relative_to(ROOT / "src") else ROOT)
    return _dotted(str(relative))


def _is_cast_target(call: ast.Call, node: ast.AST) -> bool:
    """Whether this is the "Name" of `cast("Name", value)`."""
    return (
        isinstance(node, ast.Constant)
        and call.args[:1] == [node]
        and isinstance(call.func, ast.Name)
        and call.func.id == "cast"
        and str(node.value).isidentifier()
    )


def _read_words(outer: ast.AST, node: ast.AST, top: set[int]) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        inner = "method" if isinstance(outer, ast.ClassDef) else "other"
        yield node.name, "definition" if isinstance(outer, ast.Module) else inner
    elif isinstance(node, ast.Name):
        yield (
            node.id,
            "name" if isinstance(node.ctx, ast.Load) else ("definition" if id(node) in top else "other"),
        )
    elif isinstance(node, ast.Attribute):
        yield node.attr, "member" if isinstance(node.ctx, ast.Load) else "other"
    elif isinstance(node, ast.alias):
        yield node.name, "alias" if node.asname is None else "other"
        yield node.asname or "", "other"
    elif isinstance(outer, ast.Call) and _is_cast_target(outer, node):
        yield str(cast("ast.Constant", node).value), "name"
    elif isinstance(node, ast.arg | ast.keyword):
        yield node.arg or "", "other"
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from ((name, "other") for name in node.names)
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        yield node.name or "", "other"
    elif (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and not isinstance(outer, ast.Expr)
        and re.fullmatch(r"[\w.\[\], |]+", node.value)
    ):
        yield from ((word, "other") for word in re.findall(r"[A-Za-z_]\w*", node.value))


def _read_foreign_words(words: set[str]) -> set[str]:
    """Which of these words libraries use as names of functions or attributes."""
    found: set[str] = set()
    pattern = re.compile(r"(?:def |\.|^[ \t]+)([A-Za-z_]\w*)", re.MULTILINE)
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")}:
        for path in Path(folder).rglob("*.py"):
            found.update(words.intersection(pattern.findall(path.read_text(errors="replace"))))
    return found


def _edit(source: str, node: ast.AST, old: str, new: str) -> Edit:
    start = _place_of_name(source, node, old)
    return Edit(start, Place(start.line, start.column + len(old)), new)


class Finder:
    """Finds the references of every name in a table, with several language servers."""

    def __init__(self, names: Mapping[str, str], servers: int = 2) -> None:
        self._names = sorted(names.items())
        self._servers = servers
        self.found: dict[str, Found] = {}
        self.problems: list[str] = []

    def run(self) -> None:
        remote: list[tuple[str, str, Path, Place]] = []
        words = Words(
            {re.split(r"[.(]", where.rpartition(":")[2].rstrip(")"))[-1] for where, _ in self._names}
        )
        for where, name in self._names:
            module, _, qualified = where.partition(":")
            path = path_of(module) if not module.startswith("/") else ROOT / module[1:]
            place = find_definition(path.read_text(), qualified) if path.exists() else None
            if place is None:
                self.problems.append(f"{where}: no such definition")
            elif clash := _find_clash(path.read_text(), qualified, name):
                self.problems.append(f"{where}: {clash}")
            elif edits := words.find(path, qualified, name):
                self.found[where] = edits
            else:
                remote.append((where, name, path, place))
        print(f"{len(self.found)} by their syntax, {len(remote)} through pyright", flush=True)
        shares = [remote[start :: self._servers] for start in range(self._servers)]
        threads = [threading.Thread(target=self._ask, args=(share,)) for share in shares if share]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _ask(self, share: list[tuple[str, str, Path, Place]]) -> None:
        server = LanguageServer()
        try:
            for number, (where, name, path, place) in enumerate(share, 1):
                try:
                    self.found[where] = found = server.rename(path, place, name)
                except RuntimeError as error:
                    self.problems.append(f"{where}: {error}")
                    continue
                count = sum(len(edits) for edits in found.values())
                print(f"{number}/{len(share)} {where} -> {name}: {count}", flush=True)
                if not count:
                    self.problems.append(f"{where}: pyright renames nothing")
        finally:
            server.close()


def _find_clash(source: str, qualified: str, name: str) -> str | None:
    """What the new name already means where it would be used."""
    match = re.fullmatch(r"([\w.]+?)(?:\((\w+)\))?", qualified)
    assert match is not None
    scope: ast.AST = _parse(source)
    *outer, last = match[1].split(".")
    for part in outer:
        scope = next(node for node in _definitions(scope, part) if hasattr(node, "body"))
    if match[2] is None:
        taken = any(True for _ in _definitions(scope, name))
        return f"{name} is defined there already" if taken else None
    function = next(node for node in _definitions(scope, last) if _is_function(node))
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    used |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    return f"{name} is used in the function already" if name in used else None


def rename(table: Table) -> int:
    """Rename everything in the table; return 1 if something was not found."""
    finder = Finder(table.names)
    finder.run()
    problems = finder.problems
    edits: dict[Path, dict[tuple[Place, Place], tuple[str, str]]] = defaultdict(dict)
    for where, found in sorted(finder.found.items()):
        for file, made in found.items():
            for edit in made:
                known = edits[file].setdefault((edit.start, edit.end), (edit.text, where))
                if known[0] != edit.text:
                    problems.append(
                        f"{where}: {file.name}:{edit.start.line + 1} is renamed by {known[1]}, too"
                    )
    for file, made in edits.items():
        file.write_text(
            apply_edits(file.read_text(), [Edit(*place, text) for place, (text, _) in made.items()])
        )
    rename_in_prose({where: table.names[where] for where in finder.found})
    print(*problems, sep="\n")
    return 1 if problems else 0


def rename_in_prose(names: Mapping[str, str]) -> None:
    """Rename what stands in backticks: in the module itself, and classes in the documentation."""
    by_path: dict[Path, dict[str, str]] = defaultdict(dict)
    classes: dict[str, set[str]] = defaultdict(set)
    for where, name in names.items():
        module, _, qualified = where.partition(":")
        if "(" in qualified or module.startswith("/"):
            continue
        old = qualified.split(".")[-1]
        by_path[path_of(module)][old] = name
        if old[:1].isupper() and not old.isupper() and "." not in qualified:
            classes[old].add(name)
    sure = {old: new.pop() for old, new in classes.items() if len(new) == 1}
    for path in sorted((ROOT / "src" / PACKAGE).rglob("*.py")):
        _replace_quoted(path, sure | by_path[path])
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        if path.name != "CHANGELOG.md":
            _replace_quoted(path, sure)


def _replace_quoted(path: Path, names: Mapping[str, str]) -> None:
    def replace(match: re.Match[str]) -> str:
        return re.sub(r"[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), match[0])

    text = path.read_text()
    changed = re.sub(r"(?<!`)`[\w.]+(?:\(\))?`(?!`)", replace, text)
    if changed != text:
        path.write_text(changed)


def apply_edits(source: str, edits: Iterable[Edit]) -> str:
    lines = source.splitlines(keepends=True)
    for edit in sorted(edits, key=lambda one: (one.start.line, one.start.column), reverse=True):
        assert edit.start.line == edit.end.line
        units = lines[edit.start.line].encode("utf-16-le")
        before, after = units[: edit.start.column * 2], units[edit.end.column * 2 :]
        lines[edit.start.line] = before.decode("utf-16-le") + edit.text + after.decode("utf-16-le")
    return "".join(lines)


# Moving and merging modules


@dataclass(slots=True)
class Source:
    """One Python file, before and after."""

    path: Path
    module: str | None  # below the package; None for tests and the like
    text: str
    tree: ast.Module

    @classmethod
    def read(cls, path: Path) -> Source:
        text = path.read_text()
        inside = path.is_relative_to(ROOT / "src" / PACKAGE)
        return cls(path, module_of(path) if inside else None, text, ast.parse(text))


class Moves:
    """Rewrites every file for modules that move; collects what it cannot do."""

    def __init__(self, table: Table) -> None:
        self.problems: list[str] = []
        self._sources = [Source.read(path) for path in code_files()]
        self._by_module = {one.module: one for one in self._sources if one.module is not None}
        self._new = dict(table.modules)
        self._docstrings = table.docstrings
        for old in self._new:
            if old not in self._by_module:
                self.problems.append(f"{old}: no such module")
        self._groups: dict[str, list[str]] = defaultdict(list)
        for old, new in self._new.items():
            self._groups[new].append(old)
        for new in self._groups:
            if new in self._by_module and new not in self._new and _has_code(self._by_module[new]):
                self.problems.append(f"{new} stays where it is, but is not among what it is made of")
        self._origins = {
            name: _imported_names(self._by_module[name].tree) for name in self._new if name in self._by_module
        }

    def run(self) -> None:
        texts = {source.path: self._rewrite(source) for source in self._sources}
        made: dict[Path, str] = {}
        for new, olds in self._groups.items():
            members = [(old, texts[self._by_module[old].path]) for old in olds if old in self._by_module]
            made[path_of(new)] = self._merge(new, members)
        if self.problems:
            return
        for source in self._sources:
            if source.module in self._new:
                source.path.unlink()
            elif texts[source.path] != source.text:
                source.path.write_text(texts[source.path])
        for path, text in made.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._rewrite_text_files()
        _remove_empty_packages()

    def _place(self, module: str, name: str) -> tuple[str, str]:
        """Where a name that was imported from here is now, and what it is called there."""
        while module in self._new and name in self._origins.get(module, {}):
            origin, original = self._origins[module][name]
            if not origin.startswith(f"{PACKAGE}."):
                break
            module, name = origin.removeprefix(f"{PACKAGE}."), original
        return self._new.get(module, module), name

    def _rewrite(self, source: Source) -> str:
        edits: list[tuple[int, int, int, int, str]] = []
        own = None if source.module is None else self._new.get(source.module, source.module)
        bound = _bound_names(source.tree)
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ImportFrom) and _is_ours(node.module) and not node.level:
                statements = self._rewrite_import(source, node, own, bound, edits)
                if statements is not None:
                    indent = " " * node.col_offset
                    text = ("\n" + indent).join(statements) or ("pass" if indent else "")
                    edits.append((node.lineno, node.col_offset, *_end(node), text))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._rewrite_string(source, node, edits)
        return _apply(source.text, edits)

    def _rewrite_import(
        self,
        source: Source,
        node: ast.ImportFrom,
        own: str | None,
        bound: set[str],
        edits: list[tuple[int, int, int, int, str]],
    ) -> list[str] | None:
        """The statements that replace this import; None leaves it as it is."""
        module = (node.module or "").removeprefix(PACKAGE).removeprefix(".")
        statements: list[str] = []
        changed = False
        for alias in node.names:
            inner = f"{module}.{alias.name}" if module else alias.name
            if inner in self._by_module and inner in self._new:
                statements += self._rewrite_module_import(source, alias, inner, own, bound, edits)
                changed = True
                continue
            new, name = (module, alias.name) if inner in self._by_module else self._place(module, alias.name)
            if new == own and inner not in self._by_module:  # a package may import its own modules
                changed = True
                if alias.asname not in (None, name):
                    where = f"{source.path.relative_to(ROOT)}:{node.lineno}"
                    self.problems.append(
                        f"{where}: {name} as {alias.asname} becomes a name of its own module"
                    )
                continue
            called = alias.asname or (alias.name if alias.name != name else None)
            changed |= (new, name) != (module, alias.name)
            full = f"{PACKAGE}.{new}" if new else PACKAGE
            statements.append(f"from {full} import {name}" + (f" as {called}" if called else ""))
        return statements if changed else None

    def _rewrite_module_import(
        self,
        source: Source,
        alias: ast.alias,
        module: str,
        own: str | None,
        bound: set[str],
        edits: list[tuple[int, int, int, int, str]],
    ) -> list[str]:
        new = self._new[module]
        local = alias.asname or alias.name
        uses = [
            node
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == local
        ]
        names = sorted({node.attr for node in uses})
        package, _, last = new.rpartition(".")
        if new == own:
            if clash := [name for name in names if name in bound]:
                self.problems.append(f"{source.path.relative_to(ROOT)}: {local}.{clash} are also local names")
            prefix, statements = "", []
        elif any(name in bound for name in names):
            prefix, statements = f"{last}.", [f"from {PACKAGE}.{package} import {last}"]
        else:
            prefix, statements = "", [f"from {PACKAGE}.{new} import {name}" for name in names]
        edits += [(node.lineno, node.col_offset, *_end(node), f"{prefix}{node.attr}") for node in uses]
        return statements

    def _rewrite_string(
        self, source: Source, node: ast.Constant, edits: list[tuple[int, int, int, int, str]]
    ) -> None:
        if PACKAGE not in str(node.value) and ".py" not in str(node.value):
            return
        text = ast.get_source_segment(source.text, node) or ""
        changed = self._rename_in_text(text)
        if changed != text and text[:1] in "\"'rb":  # a part of an f-string has no quotes of its own
            edits.append((node.lineno, node.col_offset, *_end(node), changed))

    def _rename_in_text(self, text: str) -> str:
        def dotted(match: re.Match[str]) -> str:
            parts = match[0].split(".")[1:]
            for length in range(len(parts), 0, -1):
                if (new := self._new.get(".".join(parts[:length]))) is not None:
                    return ".".join([PACKAGE, new, *parts[length:]])
            return match[0]

        def path(match: re.Match[str]) -> str:
            module = match[2].replace("/", ".")
            return match[1] + self._new[module].replace(".", "/") + ".py" if module in self._new else match[0]

        text = re.sub(rf"\b{PACKAGE}(?:\.\w+)+", dotted, text)
        return re.sub(rf"(?<![\w/])((?:src/{PACKAGE}/)?)([\w/]{{1,99}})\.py\b", path, text)

    def _rewrite_text_files(self) -> None:
        for pattern in TEXT:
            for path in ROOT.glob(pattern):
                if (
                    path.is_file()
                    and "node_modules" not in path.parts
                    and path.suffix in ("", ".md", ".toml", ".json")
                ):
                    text = path.read_text()
                    if (changed := self._rename_in_text(text)) != text:
                        path.write_text(changed)

    def _merge(self, new: str, members: list[tuple[str, str]]) -> str:
        parts = [Part.read(old, text) for old, text in members]
        docstring = self._docstrings.get(new) or next((one.docstring for one in parts if one.docstring), "")
        parts = _in_order_of_imports(parts, self._by_module)
        self._check_names(new, parts)
        quoted = docstring if docstring.startswith('"""') else f'"""{docstring}"""'
        headers: list[str] = list(dict.fromkeys(line for part in parts for line in part.imports))
        seen: set[str] = set()
        bodies = [_without_repeated(part, seen) for part in parts]
        return "\n".join([quoted, "", *headers, "\n\n\n".join(body.strip("\n") for body in bodies)]) + "\n"

    def _check_names(self, new: str, parts: list[Part]) -> None:
        """Two members must not mean different things by one name."""
        meanings: dict[str, tuple[str, str]] = {}
        for part in parts:
            for name, meaning in part.names.items():
                known = meanings.setdefault(name, (meaning, part.module))
                if known[0] != meaning:
                    self.problems.append(f"{new}: {name} is defined in {known[1]} and in {part.module}")


@dataclass(slots=True)
class Part:
    """A module that becomes a part of another."""

    module: str
    docstring: str
    imports: list[str]
    body: str
    names: dict[str, str]  # top-level name -> its source text, or where it is imported from
    statements: dict[str, str]

    @classmethod
    def read(cls, module: str, text: str) -> Part:
        tree = ast.parse(text)
        lines = text.splitlines()
        docstring, imports, names = "", list[str](), dict[str, str]()
        statements: dict[str, str] = {}
        start = len(lines)
        last = 0
        for number, node in enumerate(tree.body):
            segment = "\n".join(lines[last : node.end_lineno])
            is_docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if is_docstring:
                docstring = segment.strip()
            elif isinstance(node, ast.Import | ast.ImportFrom) or _is_type_checking(node):
                imports.append(segment.strip("\n"))
            else:
                start = last
                break
            last = node.end_lineno or last
        for node in tree.body:
            _note_names(node, text, names, statements)
        return cls(module, docstring, imports, "\n".join(lines[start:]), names, statements)


def _note_names(node: ast.stmt, text: str, names: dict[str, str], statements: dict[str, str]) -> None:
    source = ast.get_source_segment(text, node) or ""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        names[node.name] = source
        statements[node.name] = source
    elif isinstance(node, ast.Import | ast.ImportFrom):
        base = node.module if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            names[alias.asname or alias.name] = f"{base}.{alias.name}"
    elif isinstance(node, ast.If):
        for inner in node.body:
            _note_names(inner, text, names, statements)
    else:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name):
                names[target.id] = source
                statements[target.id] = source


def _without_repeated(part: Part, seen: set[str]) -> str:
    """The body without definitions that an earlier part has in the same words."""
    body = part.body
    for name, source in part.statements.items():
        if source in seen:
            body = body.replace(source + "\n", "", 1)
        seen.add(source)
        del name
    return body


def _in_order_of_imports(parts: list[Part], by_module: Mapping[str, Source]) -> list[Part]:
    """Those that others import come first."""
    known = {part.module: part for part in parts}
    done: dict[str, Part] = {}
    seen: set[str] = set()

    def visit(part: Part) -> None:
        if part.module in seen:
            return
        seen.add(part.module)
        for node in by_module[part.module].tree.body:
            if isinstance(node, ast.ImportFrom) and _is_ours(node.module):
                base = (node.module or "").removeprefix(PACKAGE).removeprefix(".")
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    name = inner if inner in by_module else base
                    if name in known:
                        visit(known[name])
        done.setdefault(part.module, part)

    for part in parts:
        visit(part)
    return list(done.values())


def _is_ours(module: str | None) -> bool:
    return module is not None and (module == PACKAGE or module.startswith(f"{PACKAGE}."))


def _is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _imported_names(tree: ast.Module) -> dict[str, tuple[str, str]]:
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _bound_names(tree: ast.Module) -> set[str]:
    """Every name that is bound in this file, at any depth, except by imports of modules."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in node.names)
    return found


def _end(node: ast.stmt | ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _apply(text: str, edits: list[tuple[int, int, int, int, str]]) -> str:
    """Replace spans (line, byte column, end line, end byte column); without text the line goes, too."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data = b"".join(lines)
    for line, column, end_line, end_column, new in sorted(set(edits), reverse=True):
        start, end = starts[line - 1] + column, starts[end_line - 1] + end_column
        if not new and data[end : end + 1] == b"\n" and not data[starts[line - 1] : start].strip():
            start, end = starts[line - 1], end + 1
        data = data[:start] + new.encode() + data[end:]
    return data.decode()


def _has_code(source: Source) -> bool:
    return any(not isinstance(node, ast.Expr) for node in source.tree.body)


def _remove_empty_packages() -> None:
    """Packages whose modules are all gone: nothing is left of them, or one module."""
    for path in sorted((ROOT / "src" / PACKAGE).rglob("__init__.py"), reverse=True):
        others = [one for one in path.parent.iterdir() if one.name not in ("__init__.py", "__pycache__")]
        if others:
            continue
        if not _has_code(Source.read(path)):
            path.unlink()
        else:
            path.rename(path.parent.with_suffix(".py"))
        shutil.rmtree(path.parent)


def move(table: Table) -> int:
    moves = Moves(table)
    moves.run()
    if moves.problems:
        print(*moves.problems, "nothing was changed", sep="\n")
        return 1
    _format()
    return 0


# Moving files outside the package


def move_files(table: Table) -> int:
    """Move test files and folders with git, and rewrite imports and paths of them."""
    new_paths = {
        str(path.relative_to(ROOT)): _new_path(str(path.relative_to(ROOT)), table.files)
        for folder in CODE[1:]
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    moved = {old: new for old, new in new_paths.items() if old != new}
    targets = list(new_paths.values())
    if clashes := sorted({one for one in targets if targets.count(one) > 1}):
        print(*(f"{one}: several files would move there" for one in clashes), "nothing was changed", sep="\n")
        return 1
    for old, new in moved.items():
        (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", old, new], cwd=ROOT, check=True)
    for new in moved.values():
        for folder in Path(new).parents[:-2] if new.endswith(".py") else ():
            (ROOT / folder / "__init__.py").touch()
    dotted = {_dotted(old): _dotted(new) for old, new in moved.items() if old.endswith(".py")}
    for path in [*code_files(), *(one for pattern in TEXT for one in ROOT.glob(pattern) if one.is_file())]:
        if "node_modules" in path.parts or path.suffix not in ("", ".py", ".md", ".toml", ".json"):
            continue
        text = path.read_text()
        changed = _rewrite_imports_of_files(text, dotted) if path.suffix == ".py" else text
        changed = re.sub(r"\btests(?:\.\w+)+", lambda match: _rename_dotted(match[0], dotted), changed)
        changed = re.sub(
            r"\btests(?:/[\w.-]+)+",
            lambda match: moved.get(match[0]) or _new_path(match[0], table.files),
            changed,
        )
        if changed != text:
            path.write_text(changed)
    _format()
    return 0


def _new_path(path: str, files: Mapping[str, str]) -> str:
    """The path after the move; the longest entry that fits decides."""
    for old in sorted(files, key=len, reverse=True):
        if path == old or path.startswith(f"{old}/"):
            return files[old] + path[len(old) :]
    return path


def _dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _rename_dotted(name: str, dotted: Mapping[str, str]) -> str:
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        if (new := dotted.get(".".join(parts[:length]))) is not None:
            return ".".join([new, *parts[length:]])
    return name


def _rewrite_imports_of_files(text: str, dotted: Mapping[str, str]) -> str:
    """Rewrite `from tests.folder import module`; names inside modules are left to the caller."""
    edits: list[tuple[int, int, int, int, str]] = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("tests"):
            continue
        if not any(f"{node.module}.{alias.name}" in dotted for alias in node.names):
            continue
        lines: list[str] = []
        for alias in node.names:
            full = dotted.get(f"{node.module}.{alias.name}", f"{node.module}.{alias.name}")
            package, _, last = full.rpartition(".")
            local = alias.asname or alias.name
            lines.append(f"from {package} import {last}" + (f" as {local}" if local != last else ""))
        edits.append((node.lineno, node.col_offset, *_end(node), ("\n" + " " * node.col_offset).join(lines)))
    return _apply(text, edits)


def _format() -> None:
    tidy = ["ruff", "check", "-q", "--fix", "--select", "I,F401", *CODE]
    subprocess.run(tidy, cwd=ROOT, check=False)
    subprocess.run(["ruff", "format", "-q", *CODE], cwd=ROOT, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    for name in ("rename", "move", "files"):
        actions.add_parser(name).add_argument("tables", type=Path, nargs="+")
    given = parser.parse_args()
    table = Table.from_files(given.tables)
    return {"rename": rename, "move": move, "files": move_files}[given.action](table)


if __name__ == "__main__":
    sys.exit(main())
