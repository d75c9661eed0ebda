"""The sixteen operations: what each needs and takes, what it does to the world, and who does it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from fingerpost.builtin.kit import ToolRefused, attribute_to
from fingerpost.builtin.workspace.files import listing, moving, reading, writing
from fingerpost.builtin.workspace.given import Given
from fingerpost.builtin.workspace.ground import shown_name
from fingerpost.builtin.workspace.ground.names import OUTSIDE, PROTECTED, SENSITIVE
from fingerpost.builtin.workspace.search.grep import Wanted, grep_search
from fingerpost.builtin.workspace.search.meaning import MeaningIndex
from fingerpost.builtin.workspace.switches import Act
from fingerpost.builtin.workspace.text.edits import Edit
from fingerpost.builtin.workspace.workplace import Workplace
from fingerpost.frozen import frozen
from fingerpost.records import Effect


@frozen(kw_only=False)
class Desk:
    """What an operation works with."""

    work: Workplace
    meaning: MeaningIndex


Do = Callable[[Desk, Given, Act], str]


@frozen(kw_only=False)
class Operation:
    """One operation of `file_operations`. It blocks: it is run in a thread."""

    effect: Effect
    do: Do
    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()


def _search(desk: Desk, given: Given, act: Act) -> str:
    wanted = Wanted(
        query=given.text("query"),
        path=given.text("path", "."),
        glob=given.text("pattern"),
        regex=given.flag("regex"),
        match_case=given.flag("match_case"),
        around=given.number("context_lines", 0),
        limit=given.number("limit", 100),
        everything=given.flag("include_ignored"),
    )
    return grep_search(desk.work, wanted)


def _edit(given: Given) -> Edit:
    return Edit(old=given.text("old_string"), new=given.text("new_string"), everywhere=given.flag("all"))


_READ, _WRITE, _DESTROY = Effect.READ, Effect.WRITE, Effect.DESTROY

OPERATIONS: Final[Mapping[str, Operation]] = {
    "read_file": Operation(
        _READ, lambda desk, given, _: reading.read_file(desk.work, given.text("path")), ("path",)
    ),
    "read_range": Operation(
        _READ,
        lambda desk, given, _: reading.read_range(
            desk.work, given.text("path"), given.number("start_line", 1), given.number("end_line", 0)
        ),
        ("path", "start_line"),
        ("end_line",),
    ),
    "create_file": Operation(
        _WRITE,
        lambda desk, given, act: writing.create_file(
            desk.work, given.text("path"), given.text("content"), act
        ),
        ("path",),
        ("content", "dry_run"),
    ),
    "write_file": Operation(
        _WRITE,
        lambda desk, given, act: writing.write_file(
            desk.work, given.text("path"), given.text("content"), act
        ),
        ("path", "content"),
        ("dry_run",),
    ),
    "append_file": Operation(
        _WRITE,
        lambda desk, given, act: writing.append_file(
            desk.work, given.text("path"), given.text("content"), act
        ),
        ("path", "content"),
        ("dry_run",),
    ),
    "replace_string": Operation(
        _WRITE,
        lambda desk, given, act: writing.replace_string(desk.work, given.text("path"), _edit(given), act),
        ("path", "old_string", "new_string"),
        ("all", "dry_run"),
    ),
    "multi_replace": Operation(
        _WRITE,
        lambda desk, given, act: writing.multi_replace(
            desk.work, given.text("path"), given.records("edits"), act
        ),
        ("edits",),
        ("path", "dry_run"),
    ),
    "insert_text": Operation(
        _WRITE,
        lambda desk, given, act: writing.insert_text(
            desk.work, given.text("path"), given.number("line", 0), given.text("content"), act
        ),
        ("path", "line", "content"),
        ("dry_run",),
    ),
    "rename_file": Operation(
        _WRITE,
        lambda desk, given, act: moving.rename_file(
            desk.work, given.text("path"), given.text("new_path"), act
        ),
        ("path", "new_path"),
        ("dry_run",),
    ),
    "copy_file": Operation(
        _WRITE,
        lambda desk, given, act: moving.copy_file(desk.work, given.text("path"), given.text("new_path"), act),
        ("path", "new_path"),
        ("dry_run",),
    ),
    "delete": Operation(
        _DESTROY,
        lambda desk, given, act: moving.delete(
            desk.work, given.text("path"), act, recursive=given.flag("recursive")
        ),
        ("path",),
        ("recursive", "dry_run"),
    ),
    "list_dir": Operation(
        _READ,
        lambda desk, given, _: listing.list_dir(
            desk.work,
            given.text("path", "."),
            deepest=given.number("depth", 1),
            everything=given.flag("include_ignored"),
            limit=given.number("limit", 500),
        ),
        (),
        ("path", "depth", "include_ignored", "limit"),
    ),
    "find_files": Operation(
        _READ,
        lambda desk, given, _: listing.find_files(
            desk.work,
            given.text("pattern"),
            given.text("path", "."),
            everything=given.flag("include_ignored"),
            limit=given.number("limit", 200),
        ),
        ("pattern",),
        ("path", "include_ignored", "limit"),
    ),
    "grep_search": Operation(
        _READ,
        _search,
        ("query",),
        ("path", "pattern", "regex", "match_case", "context_lines", "limit", "include_ignored"),
    ),
    "semantic_search": Operation(
        _READ,
        lambda desk, given, _: desk.meaning.search(
            given.text("query"), given.text("path", "."), given.number("limit", 5)
        ),
        ("query",),
        ("path", "limit"),
    ),
    "file_info": Operation(
        _READ, lambda desk, given, _: reading.file_info(desk.work, given.text("path")), ("path",)
    ),
}


def _paths(given: Given) -> Iterator[tuple[str, str]]:
    """Every path of a call, with the parameter it stands in."""
    for name in ("path", "new_path"):
        if given.has(name):
            yield name, given.text(name)
    for number, edit in enumerate(given.records("edits")):
        if isinstance(path := edit.get("path"), str):
            yield f"edits.{number}.path", path


def note_writes(work: Workplace, given: Given) -> None:
    """Before something is written: until a person has looked, no file there is run unasked."""
    work.unreviewed.record(*(path for _, path in _paths(given)))


# What can be done with a file outside of the working directory, where a person grants it.
_OUTSIDE: Final = frozenset(
    {"read_file", "read_range", "file_info", "list_dir", "create_file", "write_file", "append_file",
     "replace_string", "multi_replace", "insert_text", "rename_file", "copy_file", "delete"}
)  # fmt: skip


def paths_outside(work: Workplace, given: Given) -> tuple[str, ...]:
    """The whole paths of a call that lie outside of the working directory. Blocks: not for an event loop."""
    if not work.settings.outside or given.what not in _OUTSIDE:
        return ()
    found = (work.ground.outside_path(path) for _, path in _paths(given))
    return tuple(path for path in found if path is not None)


def reason_for_grant(work: Workplace, given: Given) -> str:
    """Why a person has to grant this very call; empty: they need not."""
    outside = paths_outside(work, given)
    if not outside:
        return ""
    does = "reads" if OPERATIONS[given.what].effect is Effect.READ else "changes"
    return f"it {does} {' and '.join(map(shown_name, outside[:3]))}, outside of the working directory"


def check_paths(work: Workplace, given: Given) -> None:
    """Refuse paths that lead out of the working directory or cannot be paths, naming the parameter."""
    for parameter, path in _paths(given):
        with attribute_to(parameter):
            work.ground.check_path(path)


def try_out(desk: Desk, given: Given) -> None:
    """Refuse what would fail now: what changes files is run dry, of the others the path is looked up."""
    operation = OPERATIONS[given.what]
    with attribute_to_paths(given), _without_content():
        if outside := paths_outside(desk.work, given):  # what is there is looked at once a person has agreed
            for path in outside:
                desk.work.ground.check_sensitive(path)
            return
        if operation.effect is not Effect.READ:
            operation.do(desk, given, Act(dry=True))
        elif given.has("path"):
            with desk.work.ground.at(given.text("path")) as place:
                place.there()


@contextmanager
def _without_content() -> Generator[None]:
    """Before a person agreed, a hint quotes nothing of the file: reading it may need their word as well."""
    try:
        yield
    except ToolRefused as refused:
        if not refused.error_type:
            refused.hint = ""
        raise


@contextmanager
def attribute_to_paths(given: Given) -> Generator[None]:
    """A path that may not be used is refused as a wrong argument: it is to be corrected."""
    try:
        yield
    except ToolRefused as refused:
        if refused.error_type in (OUTSIDE, PROTECTED, SENSITIVE):
            refused.parameter = _parameter_of(given, refused.path)
        raise


def _parameter_of(given: Given, refused: str) -> str:
    named = [name for name, path in _paths(given) if shown_name(path[: len(refused)]).strip("/") == refused]
    return named[0] if named else next((name for name, _ in _paths(given)), "path")
