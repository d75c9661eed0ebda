"""Files and folders as wholes: another name, a copy, gone. Nothing that exists is ever replaced."""

from __future__ import annotations

import os
import shutil
import stat
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.files.changes import reported
from fingerpost.builtin.workspace.files.reading import read_bytes
from fingerpost.builtin.workspace.ground import Place, shown_name
from fingerpost.builtin.workspace.ground.failing import EXISTS, NOT_EMPTY, told
from fingerpost.builtin.workspace.ground.place import ITSELF
from fingerpost.builtin.workspace.ground.replacing import move, put
from fingerpost.builtin.workspace.ground.walking import Walking
from fingerpost.builtin.workspace.switches import Act
from fingerpost.builtin.workspace.text.diffs import diff
from fingerpost.builtin.workspace.workplace import Workplace

MOST_COPIED: Final = 2000  # files of one folder
MOST_SHOWN: Final = 50


def rename_file(work: Workplace, path: str, new_path: str, act: Act) -> str:
    """Another name for a file or folder, perhaps in another folder."""
    with (
        work.writing,
        work.ground.at(path, follow=False) as source,
        work.ground.at(new_path, follow=False) as target,
    ):
        found = source.there()
        _check_whole(source, target, found)
        work.ground.check_write(source)
        _check_target(work, source, target)
        if stat.S_ISDIR(found.st_mode):
            _check_inside(work, source)
        if not act.dry:
            with work.ground.with_folders(target) as place:
                move(source, place)
        return reported(act, f"{'Would rename' if act.dry else 'Renamed'} {source.shown} to {target.shown}.")


def copy_file(work: Workplace, path: str, new_path: str, act: Act) -> str:
    """A copy of a file, or of a folder with all that is in it."""
    with work.writing, work.ground.at(path) as source, work.ground.at(new_path, follow=False) as target:
        found = source.there()
        _check_whole(source, target, found)
        _check_target(work, source, target)
        if stat.S_ISDIR(found.st_mode):
            return _copy_folder(work, source, target, act)
        content = read_bytes(source, work.settings.write_bytes + 1)
        _check_size(work, source.shown, len(content.data))
        if not act.dry:
            with work.ground.with_folders(target) as place:
                put(place, content.data, None)
                _keep_mode(place, content.found)
        size = f"{content.found.st_size} bytes"
        return reported(
            act, f"{'Would copy' if act.dry else 'Copied'} {source.shown} to {target.shown} ({size})."
        )


def delete(work: Workplace, path: str, act: Act, *, recursive: bool) -> str:
    """A file or an empty folder away; a folder with all that is in it where that is said."""
    with work.writing, work.ground.at(path, follow=False) as place:
        found = place.there()
        _check_whole(place, place, found)
        work.ground.check_write(place)
        if stat.S_ISDIR(found.st_mode):
            return _delete_folder(work, place, act, recursive=recursive)
        lost = _lost(place, found)
        if not act.dry:
            with told(place.shown):
                os.unlink(place.name, dir_fd=place.folder)
        return reported(act, f"{'Would delete' if act.dry else 'Deleted'} {place.shown}.{lost}")


def _lost(place: Place, found: os.stat_result) -> str:
    """What is gone with it: shown, so that a mistake can be seen and mended."""
    if not stat.S_ISREG(found.st_mode):
        return ""
    content = read_bytes(place, 64 * 1024)
    if not content.whole:
        return f" It has {found.st_size} bytes."
    return f"\n\n{diff(place.shown, content.data, None, most=60)}"


def _check_whole(source: Place, target: Place, found: os.stat_result) -> None:
    """What a folder outside holds, a person who was asked about its name has not seen."""
    if stat.S_ISDIR(found.st_mode) and (source.outside or target.outside):
        message = "A folder is not moved, copied or deleted as a whole outside of the working directory."
        raise ToolRefused(message, hint="Take its files one by one.")


def _check_target(work: Workplace, source: Place, target: Place) -> None:
    if target.name == ITSELF or (found := target.look()) is None:
        work.ground.check_new(target)
        if target.outside == source.outside and target.names[: len(source.names)] == source.names:
            message = f"{target.shown} lies inside of {source.shown}."
            raise ToolRefused(message, hint="Choose a target outside of it.")
        return
    message = f"{target.shown} exists already, and is not replaced."
    name = source.names[-1] if source.names else ""
    inside = f" To put it into that folder, say new_path={target.shown}/{shown_name(name)}."
    hint = "Choose another name, or delete it first."
    hint += inside if stat.S_ISDIR(found.st_mode) else ""
    raise ToolRefused(message, hint=hint, error_type=EXISTS, path=target.shown)


def _inside(work: Workplace, place: Place) -> list[str]:
    """All that lies in a folder, seen from the root, ignored or not."""
    walking = Walking(gitignore=False)
    folder = place.open_folder()
    try:
        found = [entry.path for entry in walking.below(folder, place.shown)]
    finally:
        os.close(folder)
    if walking.stopped:
        message = f"{place.shown} holds too much ({walking.stopped})."
        raise ToolRefused(message, hint="Take its folders one by one.")
    return found


def _check_inside(work: Workplace, place: Place) -> list[str]:
    """A folder goes nowhere with something in it that may not be changed."""
    found = _inside(work, place)
    for path in found:
        names = tuple(path.split("/"))
        work.ground.check_write(Place(folder=place.folder, name=names[-1], names=names))
    return found


def _delete_folder(work: Workplace, place: Place, act: Act, *, recursive: bool) -> str:
    found = _check_inside(work, place)
    if found and not recursive:
        message = f"{place.shown} is a folder with {len(found)} entries in it."
        hint = "Say `recursive: true` to delete all of them."
        raise ToolRefused(message, hint=hint, error_type=NOT_EMPTY, path=place.shown)
    if not act.dry:
        with told(place.shown):
            # Through descriptors only, never through a link: so the library does it here.
            shutil.rmtree(place.name, dir_fd=place.folder)
    listed = [shown_name(path) for path in found[:MOST_SHOWN]]
    if len(found) > MOST_SHOWN:
        listed.append(f"… and {len(found) - MOST_SHOWN} more")
    verb = "Would delete" if act.dry else "Deleted"
    return reported(act, "\n".join((f"{verb} the folder {place.shown} with {len(found)} entries.", *listed)))


def _copy_folder(work: Workplace, source: Place, target: Place, act: Act) -> str:
    found = _inside(work, source)
    if len(found) > MOST_COPIED:
        message = f"{source.shown} holds {len(found)} entries; up to {MOST_COPIED} are copied at once."
        raise ToolRefused(message, hint="Copy its folders one by one.")
    count = size = 0
    for path in ("", *(each[len(source.shown) + 1 :] for each in found)):
        copied = _copy_entry(work, source, target, path, act)
        if copied is not None:
            count, size = count + 1, size + copied
            _check_size(work, source.shown, size)
    verb = "Would copy" if act.dry else "Copied"
    return reported(act, f"{verb} {source.shown} to {target.shown} ({count} files, {size} bytes).")


def _copy_entry(work: Workplace, source: Place, target: Place, path: str, act: Act) -> int | None:
    """One entry of a folder; each way is gone anew from the root. Links are not copied."""
    old = "/".join(filter(None, (*source.names, path)))
    new = "/".join(filter(None, (*target.names, path)))
    with work.ground.at(f"./{old}", follow=False) as entry, work.ground.at(f"./{new}", follow=False) as copy:
        found = entry.there()
        work.ground.check_new(copy)
        if stat.S_ISDIR(found.st_mode):
            if not act.dry:
                with work.ground.with_folders(copy) as place, told(copy.shown):
                    os.mkdir(place.name, dir_fd=place.folder)
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        content = read_bytes(entry, work.settings.write_bytes + 1)
        _check_size(work, entry.shown, len(content.data))
        if not act.dry:
            with work.ground.with_folders(copy) as place:
                put(place, content.data, None)
                _keep_mode(place, content.found)
        return len(content.data)


def _check_size(work: Workplace, shown: str, size: int) -> None:
    if size > work.settings.write_bytes:
        message = f"{shown} is larger than {work.settings.write_bytes} bytes."
        raise ToolRefused(message, hint="builtin.workspace.write_bytes sets what may be written at once.")


def _keep_mode(place: Place, found: os.stat_result) -> None:
    """A program stays one."""
    if not found.st_mode & 0o111:
        return
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with told(place.shown):
        descriptor = os.open(place.name, flags, dir_fd=place.folder)
        try:
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & 0o777)
        finally:
            os.close(descriptor)
