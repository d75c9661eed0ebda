"""Notes that are everywhere: Python's own documentation, as the distribution carries it.

One note for each topic of `help()`, and one for each module of the standard library, written from its
docstrings; nothing is imported, the files are read. For size, one note for each documented class or function.
"""

from __future__ import annotations

import ast
import inspect
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import TypeAlias

Documented: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

PASSED_OVER = {
    "site-packages",
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "turtledemo",
    "ensurepip",
    "pydoc_data",
}


def topic_notes() -> Iterator[tuple[str, str]]:
    """`topics/with.txt` and its text."""
    for name, text in sorted(topics.items()):
        yield f"topics/{name}.txt", text


def module_notes() -> Iterator[tuple[str, str]]:
    """`library/difflib.md` and its text, for each public module that says something of itself."""
    for name, tree in _modules():
        text = ast.get_docstring(tree)
        parts = [f"# {name}", text or ""]
        for node in _list_documented(tree):
            parts += [f"## {node.name}", ast.get_docstring(node) or ""]
            parts += [
                f"### {method.name}\n\n{ast.get_docstring(method)}"
                for method in _list_documented(node)
                if not method.name.startswith("_")
            ]
        if text or len(parts) > 2:
            yield f"library/{name}.md", "\n\n".join(parts)


def object_notes() -> Iterator[tuple[str, str]]:
    """One for each class, method and function with a docstring: thousands."""
    for name, tree in _modules():
        for node in _list_documented(tree):
            about = ast.get_docstring(node) or ""
            yield f"objects/{name}/{node.name}.md", f"# {name}.{node.name}\n\n{about}\n"
            for method in _list_documented(node):
                doc = ast.get_docstring(method) or ""
                text = f"---\ntags: [{name.partition('.')[0]}]\n---\n# {node.name}.{method.name}\n\n{doc}\n\n"
                yield f"objects/{name}/{node.name}-{method.name}.md", f"{text}Of [[{node.name}]] in {name}.\n"


def _modules() -> Iterator[tuple[str, ast.Module]]:
    library = Path(sysconfig.get_path("stdlib"))
    for file in sorted(library.rglob("*.py")):
        parts = file.relative_to(library).with_suffix("").parts
        if PASSED_OVER & set(parts) or any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        yield ".".join(part for part in parts if part != "__init__"), tree


def _list_documented(tree: ast.Module | Documented) -> list[Documented]:
    return [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node)
        and not (node.name.startswith("_") and not node.name.startswith("__"))
    ]


def write(notes: Iterator[tuple[str, str]], folder: Path, most: int | None = None) -> int:
    """The notes as files. How many, and no more than `most`."""
    count = 0
    for path, text in notes:
        if most is not None and count >= most:
            break
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(inspect.cleandoc(text) + "\n", encoding="utf-8")
        count += 1
    return count
