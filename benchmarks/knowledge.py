"""The knowledge base on Python's own documentation: how long it takes, and what it finds.

Index time is from nothing to searchable by words; vectors come in the background and are told apart, by what
one costs. Times are CPU but for the first. Recall counts notes: the first passages of different notes,
against those that answer.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.knowledge_corpus import module_notes, object_notes, topic_notes, write
from benchmarks.knowledge_questions import NAMES, QUESTIONS
from fingerpost.builtin.knowledge import KnowledgeBase
from fingerpost.builtin.knowledge.base import FRESH_SECONDS
from fingerpost.builtin.passages import PassageHit, PassageIndex, TextPassage, split_windows
from fingerpost.narrow.dense.encoder import get_shared_encoder

SIZES = (100, 1_000, 5_000)
FILE_BYTES = 20 * 1024 * 1024
LOOKED_AT = 30  # passages, of which the notes are ranked
ENCODED = 200  # texts encoded for real to say what one costs
SETTLE_SECONDS = 1800.0


def measure_time(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def notes() -> Iterator[tuple[str, str]]:
    return chain(topic_notes(), module_notes(), object_notes())


def measure_speed(table: Table, size: int) -> None:
    """From nothing, looking again at an unchanged folder, after one change, and queries by words."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        count = write(notes(), root, size)
        base = KnowledgeBase(root, file_bytes=FILE_BYTES, by_meaning=False)
        begin = time.perf_counter()
        busy = measure_time(base.refresh)
        whole = time.perf_counter() - begin
        time.sleep(FRESH_SECONDS)
        again = measure_time(base.refresh)
        (root / "new.md").write_text("# A new note\n\nIt says something.\n", encoding="utf-8")
        time.sleep(FRESH_SECONDS)
        one = measure_time(base.refresh)
        queries = [measure_time(lambda text=text: base.search(text, 6)) for text, _ in QUESTIONS]
        base.close()
        table.add_row(
            f"{count:,}",
            f"{base.passage_count:,}",
            f"{whole:.2f}",
            f"{busy:.2f}",
            f"{again * 1e3:.0f}",
            f"{one * 1e3:.0f}",
            f"{np.median(queries) * 1e3:.1f}",
            f"{np.percentile(queries, 99) * 1e3:.1f}",
        )


Asked = Sequence[tuple[str, Sequence[str]]]


def measure(
    search: Callable[[str], Sequence[PassageHit]], asked: Asked
) -> tuple[float, float, float, list[float]]:
    """Recall at 1 and 5, the mean of the reciprocal ranks, and the seconds of each query."""
    ranks: list[int] = []
    seconds: list[float] = []
    for text, right in asked:
        begin = time.process_time()
        hits = search(text)
        seconds.append(time.process_time() - begin)
        found = list(dict.fromkeys(hit.passage.source for hit in hits))
        ranks.append(next((place for place, note in enumerate(found, start=1) if note in right), 0))
    count = len(ranks)
    return (
        sum(rank == 1 for rank in ranks) / count,
        sum(0 < rank <= 5 for rank in ranks) / count,
        sum(1 / rank for rank in ranks if rank) / count,
        seconds,
    )


def recall(console: Console) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, vectors = Path(folder) / "notes", Path(folder) / "vectors"
        count = write(chain(topic_notes(), module_notes()), root)
        base = KnowledgeBase(root, file_bytes=FILE_BYTES, by_meaning=False)
        base.refresh()
        passages = base.get_all_passages()
        base.close()
        size = sum(map(len, passages.values()))
        table = Table(title=f"What is found in {count:,} notes, {size:,} passages")
        for column in ("asked", "by", "recall@1", "recall@5", "MRR", "query p50 ms", "query p99 ms"):
            table.add_column(column, justify="left" if column in ("asked", "by") else "right")
        for name, index in (
            ("words", PassageIndex(by_meaning=False)),
            ("meaning", PassageIndex(vectors=vectors, share=1.0)),
            ("both", PassageIndex(vectors=vectors)),
        ):
            for source, own in passages.items():
                index.set_source(source, own)
            index.wait_until_ready(SETTLE_SECONDS)
            index.search("warm up")
            for kind, asked in ((f"{len(QUESTIONS)} paraphrases", QUESTIONS), (f"{len(NAMES)} names", NAMES)):
                first, five, mean, seconds = measure(
                    lambda text, index=index: index.search(text, LOOKED_AT), asked
                )
                table.add_row(
                    kind,
                    name,
                    f"{first:.2f}",
                    f"{five:.2f}",
                    f"{mean:.2f}",
                    f"{np.median(seconds) * 1e3:.1f}",
                    f"{np.percentile(seconds, 99) * 1e3:.1f}",
                )
            index.close()
        console.print(table)
        console.print(cost_of_vectors([each for own in passages.values() for each in own]))


def cost_of_vectors(passages: Sequence[TextPassage]) -> str:
    """What making a vector costs, in CPU time, and how many a passage has."""
    texts = [split_windows(passage.heading, passage.text) for passage in passages]
    encoder = get_shared_encoder()
    encoder.encode("warm up")
    some = [text for each in texts for text in each][:ENCODED]
    begin = time.process_time()
    for text in some:
        encoder.encode(text)
    each = (time.process_time() - begin) / len(some)
    total = sum(map(len, texts))
    return (
        f"Vectors: {each * 1e3:.1f} ms of CPU each, {total / len(texts):.2f} for a passage, "
        f"{total:,} here, once; kept on disk (788 bytes each)."
    )


def run() -> None:
    console = Console()
    table = Table(title="The knowledge base by size (words; CPU, ms where nothing else is said)")
    for column in (
        "notes",
        "passages",
        "index s",
        "CPU s",
        "look again",
        "one changed",
        "query p50",
        "query p99",
    ):
        table.add_column(column, justify="right")
    for size in SIZES:
        measure_speed(table, size)
    console.print(table)
    recall(console)
