"""Vectors on disk: they come back, whatever happens to the file they never do harm."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fingerpost.narrow.dense.encoder import DIMENSIONS, Vector
from fingerpost.narrow.dense.vectors import MAX_UNUSED_S, VectorCache, hash_text, round_vector
from tests.kit import warm
from tests.kit.programs import ROOT


def vector(number: int) -> Vector:
    made = np.random.default_rng(number).standard_normal(DIMENSIONS, dtype=np.float32)
    return round_vector(made / np.float32(np.linalg.norm(made)))


def some(*numbers: int) -> dict[bytes, Vector]:
    return {hash_text(f"text {number}"): vector(number) for number in numbers}


def file_of(folder: Path) -> Path:
    (path,) = folder.glob("*.vectors")
    return path


def list_stored(folder: Path, *numbers: int) -> list[int]:
    """Which of these come back, each checked to be the very vector that was put in."""
    kept = VectorCache(folder, "one").find(list(some(*numbers)))
    for key, value in some(*numbers).items():
        assert key not in kept or np.array_equal(kept[key], value)
    return [number for number in numbers if hash_text(f"text {number}") in kept]


def test_what_was_added_is_found_again_by_another(tmp_path: Path) -> None:
    VectorCache(tmp_path / "new" / "folder", "one").add(some(1, 2))
    VectorCache(tmp_path / "new" / "folder", "one").add(some(3))
    assert list_stored(tmp_path / "new" / "folder", 1, 2, 3, 4) == [1, 2, 3]


def test_another_encoder_finds_nothing(tmp_path: Path) -> None:
    VectorCache(tmp_path, "one").add(some(1))
    assert VectorCache(tmp_path, "two").find(list(some(1))) == {}


def test_no_folder_is_an_empty_cache(tmp_path: Path) -> None:
    assert VectorCache(tmp_path / "missing", "one").find(list(some(1))) == {}


def test_a_changed_byte_costs_that_vector_only(tmp_path: Path) -> None:
    VectorCache(tmp_path, "one").add(some(1, 2, 3))
    path = file_of(tmp_path)
    content = bytearray(path.read_bytes())
    content[content.index(vector(2).astype("<f2").tobytes()) + 50] ^= 0xFF
    path.write_bytes(content)
    assert list_stored(tmp_path, 1, 2, 3) == [1, 3]


@pytest.mark.parametrize("cut", [1, 3, 2000])
def test_a_file_that_lost_its_end_is_written_anew(tmp_path: Path, cut: int) -> None:
    VectorCache(tmp_path, "one").add(some(*range(50)))
    path = file_of(tmp_path)
    os.truncate(path, path.stat().st_size - cut)
    list_stored(tmp_path, *range(50))  # nothing wrong comes back
    VectorCache(tmp_path, "one").add(some(*range(50, 60)))
    VectorCache(tmp_path, "one").add(some(60))
    assert list_stored(tmp_path, 60) == [60]


@pytest.mark.parametrize("content", [b"", b"not ours", os.urandom(5000)])
def test_a_file_that_is_not_a_cache_is_written_anew(tmp_path: Path, content: bytes) -> None:
    VectorCache(tmp_path, "one").add(some(1))
    file_of(tmp_path).write_bytes(content)
    assert list_stored(tmp_path, 1) == []
    VectorCache(tmp_path, "one").add(some(2))
    assert list_stored(tmp_path, 1, 2) == [2]


@pytest.mark.slow
def test_it_does_not_grow_beyond_its_bound_and_the_newest_stay(tmp_path: Path) -> None:
    bound = 2**17
    cache = VectorCache(tmp_path, "one", max_bytes=bound)
    for number in range(300):
        cache.add(some(number))
        assert file_of(tmp_path).stat().st_size <= bound
    assert list_stored(tmp_path, *range(220, 300)) == list(range(220, 300))
    assert [path.name for path in tmp_path.iterdir()] == ["one.vectors"]


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = VectorCache(tmp_path / "file" / "folder", "one")
    cache.add(some(1))
    cache.add(some(2))
    assert cache.find(list(some(1))) == {}
    assert len(caplog.messages) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_no_error(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, "one")
    cache.add(some(1))
    path = file_of(tmp_path)
    path.unlink()
    path.symlink_to("/dev/full")
    cache.add(some(2))
    assert cache.find(list(some(1, 2))) == {}


@pytest.mark.slow
def test_a_lock_that_is_never_released_only_means_that_nothing_is_kept(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, "one")
    cache.add(some(1))
    with closing(sqlite3.connect(file_of(tmp_path))) as other:
        other.execute("BEGIN EXCLUSIVE")
        cache.add(some(2))
    assert list_stored(tmp_path, 1, 2) == [1]


def test_files_of_encoders_long_unused_are_swept_away(tmp_path: Path) -> None:
    for name in ("old", "recent"):
        VectorCache(tmp_path, name).add(some(1))
    before = time.time() - MAX_UNUSED_S - 60
    os.utime(tmp_path / "old.vectors", (before, before))
    VectorCache(tmp_path, "one").add(some(1))
    assert sorted(path.name for path in tmp_path.glob("*.vectors")) == ["one.vectors", "recent.vectors"]


def add_many(folder: Path, first: int) -> None:
    cache = VectorCache(folder, "one")
    for number in range(first, first + 30):
        cache.add(some(number))


@pytest.mark.process
def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from tests.narrow.dense.test_vectors import add_many"
    writers = [
        subprocess.Popen(
            [*warm.python(), "-c", f"{program}; add_many(Path(sys.argv[1]), {first})", str(tmp_path)],
            cwd=ROOT,
        )
        for first in (0, 100)
    ]
    assert [writer.wait(50) for writer in writers] == [0, 0]
    everything = [*range(30), *range(100, 130)]
    assert list_stored(tmp_path, *everything) == everything
