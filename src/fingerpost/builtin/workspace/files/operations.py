"""The sixteen operations: what each needs and takes, what it does to the world, and who does it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from fingerpost.builtin.kit import ToolRefused, attribute_to
from fingerpost.builtin.workspace.files import listing, moving, reading, writing
from fingerpost.builtin.workspace.given import ToolArguments
from fingerpost.builtin.workspace.ground import format_name
from fingerpost.builtin.workspace.ground.names import OUTSIDE_TYPE, PROTECTED_TYPE, SENSITIVE_NAMES
from fingerpost.builtin.workspace.search.grep import TextQuery, search_text
from fingerpost.builtin.workspace.search.meaning import MeaningIndex
from fingerpost.builtin.workspace.switches import RunMode
from fingerpost.builtin.workspace.text.edits import TextEdit
from fingerpost.builtin.workspace.workplace import WorkspaceContext
from fingerpost.frozen import frozen
from fingerpost.records import Effect


@frozen(kw_only=False)
class FileContext:
    """What an operation works with."""

    workspace: WorkspaceContext
    meaning_index: MeaningIndex


FileAction = Callable[[FileContext, ToolArguments, RunMode], str]


@frozen(kw_only=False)
class FileOperation:
    """One operation of `file_operations`. It blocks: it is run in a thread."""

    effect: Effect
    action: FileAction
    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()


def _search_text(context: FileContext, args: ToolArguments, run_mode: RunMode) -> str:
    wanted = TextQuery(
        query=args.get_text("query"),
        path=args.get_text("path", "."),
        glob=args.get_text("pattern"),
        regex=args.get_flag("regex"),
        match_case=args.get_flag("match_case"),
        context_lines=args.get_number("context_lines", 0),
        limit=args.get_number("limit", 100),
        include_ignored=args.get_flag("include_ignored"),
    )
    return search_text(context.workspace, wanted)


def _build_edit(args: ToolArguments) -> TextEdit:
    return TextEdit(
        old=args.get_text("old_string"), new=args.get_text("new_string"), everywhere=args.get_flag("all")
    )


_READ, _WRITE, _DESTROY = Effect.READ, Effect.WRITE, Effect.DESTROY

OPERATIONS: Final[Mapping[str, FileOperation]] = {
    "read_file": FileOperation(
        _READ, lambda desk, given, _: reading.read_file(desk.workspace, given.get_text("path")), ("path",)
    ),
    "read_range": FileOperation(
        _READ,
        lambda desk, given, _: reading.read_range(
            desk.workspace,
            given.get_text("path"),
            given.get_number("start_line", 1),
            given.get_number("end_line", 0),
        ),
        ("path", "start_line"),
        ("end_line",),
    ),
    "create_file": FileOperation(
        _WRITE,
        lambda desk, given, act: writing.create_file(
            desk.workspace, given.get_text("path"), given.get_text("content"), act
        ),
        ("path",),
        ("content", "dry_run"),
    ),
    "write_file": FileOperation(
        _WRITE,
        lambda desk, given, act: writing.write_file(
            desk.workspace, given.get_text("path"), given.get_text("content"), act
        ),
        ("path", "content"),
        ("dry_run",),
    ),
    "append_file": FileOperation(
        _WRITE,
        lambda desk, given, act: writing.append_file(
            desk.workspace, given.get_text("path"), given.get_text("content"), act
        ),
        ("path", "content"),
        ("dry_run",),
    ),
    "replace_string": FileOperation(
        _WRITE,
        lambda desk, given, act: writing.replace_string(
            desk.workspace, given.get_text("path"), _build_edit(given), act
        ),
        ("path", "old_string", "new_string"),
        ("all", "dry_run"),
    ),
    "multi_replace": FileOperation(
        _WRITE,
        lambda desk, given, act: writing.replace_strings(
            desk.workspace, given.get_text("path"), given.get_records("edits"), act
        ),
        ("edits",),
        ("path", "dry_run"),
    ),
    "insert_text": FileOperation(
        _WRITE,
        lambda desk, given, act: writing.insert_text(
            desk.workspace,
            given.get_text("path"),
            given.get_number("line", 0),
            given.get_text("content"),
            act,
        ),
        ("path", "line", "content"),
        ("dry_run",),
    ),
    "rename_file": FileOperation(
        _WRITE,
        lambda desk, given, act: moving.rename_file(
            desk.workspace, given.get_text("path"), given.get_text("new_path"), act
        ),
        ("path", "new_path"),
        ("dry_run",),
    ),
    "copy_file": FileOperation(
        _WRITE,
        lambda desk, given, act: moving.copy_file(
            desk.workspace, given.get_text("path"), given.get_text("new_path"), act
        ),
        ("path", "new_path"),
        ("dry_run",),
    ),
    "delete": FileOperation(
        _DESTROY,
        lambda desk, given, act: moving.delete_path(
            desk.workspace, given.get_text("path"), act, recursive=given.get_flag("recursive")
        ),
        ("path",),
        ("recursive", "dry_run"),
    ),
    "list_dir": FileOperation(
        _READ,
        lambda desk, given, _: listing.list_folder(
            desk.workspace,
            given.get_text("path", "."),
            max_depth=given.get_number("depth", 1),
            include_ignored=given.get_flag("include_ignored"),
            limit=given.get_number("limit", 500),
        ),
        (),
        ("path", "depth", "include_ignored", "limit"),
    ),
    "find_files": FileOperation(
        _READ,
        lambda desk, given, _: listing.find_files(
            desk.workspace,
            given.get_text("pattern"),
            given.get_text("path", "."),
            include_ignored=given.get_flag("include_ignored"),
            limit=given.get_number("limit", 200),
        ),
        ("pattern",),
        ("path", "include_ignored", "limit"),
    ),
    "grep_search": FileOperation(
        _READ,
        _search_text,
        ("query",),
        ("path", "pattern", "regex", "match_case", "context_lines", "limit", "include_ignored"),
    ),
    "semantic_search": FileOperation(
        _READ,
        lambda desk, given, _: desk.meaning_index.search_passages(
            given.get_text("query"), given.get_text("path", "."), given.get_number("limit", 5)
        ),
        ("query",),
        ("path", "limit"),
    ),
    "file_info": FileOperation(
        _READ, lambda desk, given, _: reading.describe_path(desk.workspace, given.get_text("path")), ("path",)
    ),
}


def _iterate_paths(args: ToolArguments) -> Iterator[tuple[str, str]]:
    """Every path of a call, with the parameter it stands in."""
    for name in ("path", "new_path"):
        if args.has(name):
            yield name, args.get_text(name)
    for number, edit in enumerate(args.get_records("edits")):
        if isinstance(path := edit.get("path"), str):
            yield f"edits.{number}.path", path


def note_writes(workspace: WorkspaceContext, args: ToolArguments) -> None:
    """Before something is written: until a person has looked, no file there is run unasked."""
    workspace.unreviewed.record_names(*(path for _, path in _iterate_paths(args)))


# What can be done with a file outside of the working directory, where a person grants it.
_OUTSIDE_REASON: Final = frozenset(
    {"read_file", "read_range", "file_info", "list_dir", "create_file", "write_file", "append_file",
     "replace_string", "multi_replace", "insert_text", "rename_file", "copy_file", "delete"}
)  # fmt: skip


def find_outside_paths(workspace: WorkspaceContext, args: ToolArguments) -> tuple[str, ...]:
    """The whole paths of a call that lie outside of the working directory. Blocks: not for an event loop."""
    if not workspace.settings.outside or args.operation not in _OUTSIDE_REASON:
        return ()
    found = (workspace.root_folder.get_outside_path(path) for _, path in _iterate_paths(args))
    return tuple(path for path in found if path is not None)


def get_grant_reason(workspace: WorkspaceContext, args: ToolArguments) -> str:
    """Why a person has to grant this very call; empty: they need not."""
    outside = find_outside_paths(workspace, args)
    if not outside:
        return ""
    does = "reads" if OPERATIONS[args.operation].effect is Effect.READ else "changes"
    return f"it {does} {' and '.join(map(format_name, outside[:3]))}, outside of the working directory"


def check_paths(workspace: WorkspaceContext, args: ToolArguments) -> None:
    """Refuse paths that lead out of the working directory or cannot be paths, naming the parameter."""
    for parameter, path in _iterate_paths(args):
        with attribute_to(parameter):
            workspace.root_folder.check_path(path)


def check_feasible(context: FileContext, args: ToolArguments) -> None:
    """Refuse what would fail now: what changes files is run dry, of the others the path is looked up."""
    operation = OPERATIONS[args.operation]
    with attribute_to_paths(args), _hide_content():
        if outside := find_outside_paths(
            context.workspace, args
        ):  # what is there is looked at once a person has agreed
            for path in outside:
                context.workspace.root_folder.check_sensitive(path)
            return
        if operation.effect is not Effect.READ:
            operation.action(context, args, RunMode(is_dry_run=True))
        elif args.has("path"):
            with context.workspace.root_folder.open_entry(args.get_text("path")) as place:
                place.require_stat()


@contextmanager
def _hide_content() -> Generator[None]:
    """Before a person agreed, a hint quotes nothing of the file: reading it may need their word as well."""
    try:
        yield
    except ToolRefused as refused:
        if not refused.error_type:
            refused.hint = ""
        raise


@contextmanager
def attribute_to_paths(args: ToolArguments) -> Generator[None]:
    """A path that may not be used is refused as a wrong argument: it is to be corrected."""
    try:
        yield
    except ToolRefused as refused:
        if refused.error_type in (OUTSIDE_TYPE, PROTECTED_TYPE, SENSITIVE_NAMES):
            refused.parameter = _find_parameter(args, refused.path)
        raise


def _find_parameter(args: ToolArguments, refused_path: str) -> str:
    named = [
        name
        for name, path in _iterate_paths(args)
        if format_name(path[: len(refused_path)]).strip("/") == refused_path
    ]
    return named[0] if named else next((name for name, _ in _iterate_paths(args)), "path")
