"""Count what makes the package hard to find one's way in: `python -m tests.structure [FOLDER]`.

`tests/test_structure.py` fails when a count is over its limit. Each finding names a place and what to do.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast

Node = TypeVar("Node", bound=ast.AST)
PACKAGE: Final = Path(__file__).parent.parent / "src" / "fingerpost"
GERUND_NOUNS: Final = frozenset(
    [
        "embedding",
        "heading",
        "learning",
        "listing",
        "logging",
        "mapping",
        "pricing",
        "ranking",
        "ring",
        "routing",
        "setting",
        "streaming",
        "string",
        "testing",
        "timing",
        "tracing",
        "typing",
        "warning",
    ]
)
PARTICIPLES: Final = frozenset(
    [
        "begun",
        "bound",
        "brought",
        "built",
        "chosen",
        "found",
        "given",
        "gone",
        "heard",
        "held",
        "kept",
        "known",
        "left",
        "made",
        "meant",
        "said",
        "seen",
        "sent",
        "shown",
        "spoken",
        "taken",
        "told",
        "written",
    ]
)
VERBS_IN_ED: Final = frozenset(["embed", "exceed", "feed", "need", "proceed", "seed", "speed", "succeed"])
SMALL_MODULE_LINES: Final = 100
RUN_STATE: Final = "fingerpost.router.modes.run_state"  # the module that owns the state of a run


@dataclass(frozen=True)
class Module:
    name: str  # dotted, with the package: fingerpost.router.router
    path: Path
    tree: ast.Module
    text: str
    _statements: dict[type[ast.AST], list[ast.AST]]  # by kind

    @classmethod
    def parse(cls, name: str, path: Path) -> Module:
        """Parse a file and collect its statements once, for all rules."""
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        statements: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        left: list[ast.AST] = [tree]
        while left:
            node = left.pop()
            statements[type(node)].append(node)
            for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                left += getattr(node, part, ())
        return cls(name, path, tree, text, statements)

    def find(self, *kinds: type[Node]) -> Iterator[Node]:
        """The statements of these kinds."""
        for kind in kinds:
            yield from cast("list[Node]", self._statements.get(kind, []))

    def find_expressions(self, kind: type[Node], mark: str) -> Iterator[Node]:
        """The expressions of this kind, if the file has this mark."""
        if mark in self.text:
            yield from (node for node in ast.walk(self.tree) if isinstance(node, kind))

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


@dataclass(frozen=True)
class Rule:
    """One count: its limit, what to do about a finding, and how the findings are made."""

    title: str
    limit: int
    advice: str
    find: Callable[[list[Module]], list[str]]


def read_modules(root: Path = PACKAGE) -> list[Module]:
    modules: list[Module] = []
    gc.disable()  # it would go through all the trees again and again, and they have no cycles
    for path in sorted(root.rglob("*.py")):
        parts = [root.name, *path.relative_to(root).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules.append(Module.parse(name, path))
    gc.enable()
    return modules


def find_files(modules: list[Module]) -> list[str]:
    return [module.name for module in modules]


def find_repeated_classes(modules: list[Module]) -> list[str]:
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.find(ast.ClassDef):
            places[node.name].append(module.name)
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]


def find_gerund_modules(modules: list[Module]) -> list[str]:
    return [
        module.name
        for module in modules
        if (word := module.name.rpartition(".")[2].split("_")[-1]).endswith("ing")
        and word not in GERUND_NOUNS
    ]


def find_participle_functions(modules: list[Module]) -> list[str]:
    return [
        f"{module.name}.{node.name}"
        for module in modules
        for node in module.find(ast.FunctionDef, ast.AsyncFunctionDef)
        if _is_participle(node.name.strip("_"))
        and not any(re.search(r"property|contextmanager", ast.unparse(one)) for one in node.decorator_list)
    ]


def _is_participle(word: str) -> bool:
    return word in PARTICIPLES or (re.fullmatch(r"[a-z]{3,}ed", word) is not None and word not in VERBS_IN_ED)


def find_hidden_imports(modules: list[Module]) -> list[str]:
    return [
        f"{module.name}:{line}"
        for module in modules
        for line in sorted({node.lineno for node in _find_late_imports(module) if any(_read_targets(node))})
    ]


def _find_late_imports(module: Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports inside functions."""
    spans = [
        (function.lineno, function.end_lineno or function.lineno)
        for function in module.find(ast.FunctionDef, ast.AsyncFunctionDef)
    ]
    for node in module.find(ast.Import, ast.ImportFrom):
        if any(first <= node.lineno <= last for first, last in spans):
            yield node


def find_fragments(modules: list[Module]) -> list[str]:
    """Small modules that one module of the same package imports.

    Modules whose names their package exports are none, and such that are loaded inside a function alone:
    those are apart because of what they load.
    """
    known = {module.name: module for module in modules}
    importers: dict[str, set[str]] = defaultdict(set)
    late = {
        target for module in modules for node in _find_late_imports(module) for target in _read_targets(node)
    }
    for module in modules:
        for node in module.find(ast.Import, ast.ImportFrom):
            for target in _read_targets(node):
                if target in known and target != module.name:
                    importers[target].add(module.name)
    return [
        f"{name} ({known[name].lines} lines): imported by {importer}"
        for name, found in sorted(importers.items())
        if len(found) == 1
        for importer in found
        if not known[name].is_package
        and name not in late
        and not known[importer].is_package
        and known[name].lines < SMALL_MODULE_LINES
        and importer.rpartition(".")[0] == name.rpartition(".")[0]
        and not _is_declarative(known[name].tree)
    ]


def find_numbered_codes(modules: list[Module]) -> list[str]:
    """JSON-RPC error codes that are written as numbers. Servers of the test kit send any bytes."""
    return [
        f"{module.name}:{node.lineno}"
        for module in modules
        if module.name not in ("fingerpost.surfaces.gateway.protocol", "fingerpost.servers.errors")
        and not module.name.startswith("fingerpost.testing.")
        for node in module.find_expressions(ast.UnaryOp, "-32")
        if isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
        and isinstance(node.operand.value, int)
        and 32_000 <= node.operand.value <= 32_999
    ]


def _is_declarative(tree: ast.Module) -> bool:
    """Whether a module holds protocols or tables of data alone."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        if isinstance(node, ast.ClassDef) and not any("Protocol" in ast.unparse(one) for one in node.bases):
            return False
    return True


def find_foreign_writes(modules: list[Module]) -> list[str]:
    """Assignments of attributes that the state of a run has, in other modules that know it."""
    owner = next(module for module in modules if module.name == RUN_STATE)
    state = next(
        node for node in owner.tree.body if isinstance(node, ast.ClassDef) and node.name == "RunState"
    )
    fields = {node.attr for node in ast.walk(state) if isinstance(node, ast.Attribute) and _is_written(node)}
    return [
        f"{module.name}:{target.lineno}: {ast.unparse(target)}"
        for module in modules
        if module is not owner
        and any(node.id == "RunState" for node in module.find_expressions(ast.Name, "RunState"))
        for target in module.find_expressions(ast.Attribute, "RunState")
        if _is_written(target) and target.attr in fields and ast.unparse(target.value) != "self"
    ]


def _is_written(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store | ast.Del)


def find_merged_keywords(modules: list[Module]) -> list[str]:
    """Calls that merge dictionaries of keywords on the way: `f(**{**options, …})`."""
    return [
        f"{module.name}:{node.lineno}"
        for module in modules
        for node in module.find_expressions(ast.Call, "**{")
        for keyword in node.keywords
        if keyword.arg is None and isinstance(keyword.value, ast.Dict) and None in keyword.value.keys
    ]


def _read_targets(node: ast.AST) -> Iterator[str]:
    """The modules of our own that an import may name."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE.name:
        yield from {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.split(".")[0] == PACKAGE.name)


RULES: Final = (
    Rule("Python files", 400, "add to the module that has the idea already, or merge two", find_files),
    Rule("class names used twice", 0, "qualify the name: ChatTurn, not a second Turn", find_repeated_classes),
    Rule("modules named by a gerund", 0, "name the noun: prompts, not prompting", find_gerund_modules),
    Rule(
        "functions named by a participle",
        0,
        "begin with a verb: render_, not rendered",
        find_participle_functions,
    ),
    Rule(
        "own imports in functions",
        20,
        "import at the top, unless it loads something heavy",
        find_hidden_imports,
    ),
    Rule("small modules with one importer", 0, "move the code into the importer", find_fragments),
    Rule(
        "JSON-RPC codes written as numbers",
        0,
        "import it from mcp_types.jsonrpc, from servers.errors where the MCP library is not loaded yet, or "
        "from surfaces.gateway.protocol if it is our own",
        find_numbered_codes,
    ),
    Rule(
        "foreign writes to the state of a run",
        0,
        "call a method of RunState that says what happened",
        find_foreign_writes,
    ),
    Rule("merged keywords in calls", 0, "pass a record on, or `replace` it", find_merged_keywords),
)


def main(folder: str | None = None) -> None:
    modules = read_modules(PACKAGE if folder is None else Path(folder))
    for rule in RULES:
        sys.stdout.write(f"{rule.title:34} {len(rule.find(modules)):5}   limit {rule.limit}\n")
    sys.stdout.write(f"{'lines':34} {sum(module.lines for module in modules):5}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
