"""Fits the weights that say whether a request needs a tool.

    python -m training.fit_need                    fit on words, judge by cross-validation, write the weights
    python -m training.fit_need --encoder          fit the head that uses the encoder's vectors as well
    python -m training.fit_need --judge SET.jsonl  also judge on requests not fitted on (any number of sets)
    python -m training.fit_need --dry              write nothing

Ridge logistic regression, solved in its dual by Newton steps: with a couple of
thousand requests that is a few small matrices, exact and the same every time.
How strongly words, cues and vectors are held back is chosen by cross-validation
on our own data alone.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fingerpost.narrow.need.classifier import WEIGHTS_FILE, NeedClassifier, load_need_model
from fingerpost.narrow.need.features import CUE_POSITION, CUES, FEATURE_SLOTS, extract_features
from fingerpost.narrow.signals.reader import SignalReader
from fingerpost.records import Message, Signals
from fingerpost.settings import NarrowSettings

DATA = Path(__file__).parent / "data" / "need" / "requests.jsonl"
FOLDS = 5
STEPS = 25  # Newton steps at most; about eight are needed
Array = NDArray[np.float64]
Kernel = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One labelled request, read."""

    id: str
    text: str
    language: str
    why: str
    needs_tool: bool
    history: tuple[Message, ...]
    signals: Signals
    vector: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """How far each block of features may move the score: the prior deviation of its weights."""

    cues: float
    words: float
    vector: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The requests as numbers."""

    cues: Array
    words: Array
    vectors: Array | None
    labels: Array


def load_requests(path: Path, reader: SignalReader, encoder: Any | None = None) -> list[Request]:
    """The labelled requests of a file, with their signals and, given an encoder, their vectors."""
    found: list[Request] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        signals = reader.read(row["query"])
        vector = None
        if encoder is not None:
            vector = np.asarray(encoder.encode(signals.gloss or row["query"]), dtype=np.float32)
        found.append(
            Request(
                id=row["id"],
                text=row["query"],
                language=row.get("lang", "en"),
                why=row.get("why") or row.get("category") or "",
                needs_tool=bool(row["needs_tool"]),
                history=tuple(
                    Message(role=turn["role"], text=turn["content"]) for turn in row.get("history") or ()
                ),
                signals=signals,
                vector=vector,
            )
        )
    return found


def tabulate(requests: Sequence[Request]) -> Table:
    """Cues and hashed words as matrices. What history decides is not the weights' business."""
    cues = np.zeros((len(requests), len(CUES)))
    words = np.zeros((len(requests), FEATURE_SLOTS), dtype=np.float32)
    for row, request in enumerate(requests):
        reading = extract_features(request.text, request.signals)
        for name in reading.cues:
            cues[row, CUE_POSITION[name]] = 1.0
        if reading.features:
            words[row, [slot for slot, _ in reading.features]] = len(reading.features) ** -0.5
    vectors = None
    if requests and all(request.vector is not None for request in requests):
        vectors = np.stack([request.vector for request in requests if request.vector is not None]).astype(
            np.float64
        )
    labels = np.array([1.0 if request.needs_tool else -1.0 for request in requests])
    return Table(cues=cues, words=words, vectors=vectors, labels=labels)  # pyright: ignore[reportArgumentType]


def sigmoid(value: Array) -> Array:
    return 1 / (1 + np.exp(-np.clip(value, -40, 40)))


def product(kernel: Kernel, values: Array) -> Array:
    return (kernel @ values.astype(np.float32)).astype(np.float64)


def solve(kernel: Kernel, labels: Array) -> Array:
    """The dual weights of ridge logistic regression (Rasmussen and Williams, algorithm 3.1)."""
    scores = np.zeros(len(labels))
    dual = np.zeros(len(labels))
    inside = np.zeros(len(labels))
    for _ in range(STEPS):
        chance = sigmoid(scores)
        curve = np.maximum(chance * (1 - chance), 1e-9)
        root = np.sqrt(curve)
        target = curve * scores + (labels + 1) / 2 - chance
        inside = _conjugate_gradient(kernel, root, root * product(kernel, target), inside)
        new = target - root * inside
        moved = float(np.abs(new - dual).max())
        dual, scores = new, product(kernel, new)
        if moved < 1e-4:
            break
    return dual


def _conjugate_gradient(kernel: Kernel, root: Array, right: Array, start: Array) -> Array:
    """The x for which x + root * K (root * x) = right: products with K alone, no factorising."""
    found = start.copy()
    rest = right - found - root * product(kernel, root * found)
    along = rest.copy()
    length = float(rest @ rest)
    enough = 1e-7 * float(right @ right)
    for _ in range(300):
        if length <= enough:
            break
        image = along + root * product(kernel, root * along)
        step = length / float(along @ image)
        found += step * along
        rest -= step * image
        length, before = float(rest @ rest), length
        along = rest + (length / before) * along
    return found


@dataclass(slots=True)
class Blocks:
    """The kernels of the three blocks, computed once; a strength only scales them."""

    table: Table
    kept: NDArray[np.bool_]  # cues allowed to count

    def kernel(self, strength: Strength) -> Kernel:
        cues = self.table.cues[:, self.kept]
        kernel = strength.cues**2 * (cues @ cues.T) + strength.words**2 * self._words() + 4.0
        if self.table.vectors is not None and strength.vector:
            kernel = kernel + strength.vector**2 * self._vectors(self.table.vectors)
        return kernel.astype(np.float32)  # half the memory to walk through, which is the whole cost

    _word_kernel: Array | None = None
    _vector_kernel: Array | None = None

    def _words(self) -> Array:
        if self._word_kernel is None:
            self._word_kernel = (self.table.words @ self.table.words.T).astype(np.float64)
        return self._word_kernel

    def _vectors(self, vectors: Array) -> Array:
        if self._vector_kernel is None:
            moved = vectors - vectors.mean(axis=0)
            self._vector_kernel = np.asarray(moved @ moved.T, dtype=np.float64)
        return self._vector_kernel


def out_of_fold(kernel: Kernel, labels: Array, folds: NDArray[np.int64]) -> Array:
    """Each request's score by weights that never saw it."""
    scores = np.zeros(len(labels))
    for fold in range(FOLDS):
        held, rest = folds == fold, folds != fold
        dual = solve(kernel[np.ix_(rest, rest)], labels[rest])
        scores[held] = product(kernel[np.ix_(held, rest)], dual)
    return scores


def log_loss(scores: Array, labels: Array) -> float:
    return float(np.mean(np.logaddexp(0, -labels * scores)))


def choose(blocks: Blocks, folds: NDArray[np.int64], *, vectors: bool) -> Strength:
    """The strength with the least cross-validated loss, one block after the other."""
    best, least = Strength(cues=1.2, words=2.0), float("inf")
    for block, values in (
        ("vector", (2.0, 3.0, 4.5) if vectors else (0.0,)),
        ("words", (2.0, 3.0, 4.5)),
        ("cues", (0.8, 1.2, 1.8)),
    ):
        start = best
        for value in values:
            strength = replace(start, **{block: value})
            loss = log_loss(
                out_of_fold(blocks.kernel(strength), blocks.table.labels, folds), blocks.table.labels
            )
            if loss < least:
                best, least = strength, loss
    return best


def fit(table: Table, folds: NDArray[np.int64], *, vectors: bool) -> tuple[dict[str, Any], Array]:
    """Weights in which no cue speaks for the wrong side, and the out-of-fold scores."""
    sides = np.array([cue.side for cue in CUES])
    blocks = Blocks(table, np.ones(len(CUES), dtype=bool))
    strength = choose(blocks, folds, vectors=vectors)
    while True:
        dual = solve(blocks.kernel(strength), table.labels)
        cues = np.where(blocks.kept, strength.cues**2 * (table.cues.T @ dual), 0.0)
        wrong = sides * cues < 0
        if not wrong.any():
            break
        blocks.kept = blocks.kept & ~wrong
    scores = out_of_fold(blocks.kernel(strength), table.labels, folds)
    warmth = temperature(scores, table.labels)
    print(f"  strength {strength}, temperature {warmth:.2f}, silent cues: {_silent(blocks.kept)}")
    weights: dict[str, Any] = {
        "bias": np.float32(warmth * 4.0 * dual.sum()),
        "cues": (warmth * cues).astype(np.float32),
        "words": (warmth * strength.words**2 * (table.words.T @ dual)).astype(np.float32),
    }
    if vectors:
        assert table.vectors is not None
        centre = table.vectors.mean(axis=0)
        moved = table.vectors - centre
        weights["vector"] = (warmth * strength.vector**2 * (moved.T @ dual)).astype(np.float32)
        weights["centre"] = centre.astype(np.float32)
    return weights, warmth * scores


def _silent(kept: NDArray[np.bool_]) -> str:
    return ", ".join(cue.name for cue, stays in zip(CUES, kept, strict=True) if not stays) or "none"


def temperature(scores: Array, labels: Array) -> float:
    """What the scores must be multiplied with so that 0.8 means eight in ten."""
    grid = np.arange(0.5, 2.55, 0.05)
    return float(grid[np.argmin([log_loss(scores * warmth, labels) for warmth in grid])])


def report(title: str, requests: Sequence[Request], chances: Iterable[float]) -> None:
    """Accuracy, false positives and misses, over all and by language and kind."""
    groups: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for request, chance in zip(requests, chances, strict=True):
        pair = (request.needs_tool, chance)
        groups["all"].append(pair)
        groups[f"language {request.language}"].append(pair)
        if request.why:
            groups[f"{'tool' if request.needs_tool else 'none'}: {request.why}"].append(pair)
    print(f"{title}\n  {'':62}     n   right  false+  missed  called none")
    for name, pairs in sorted(groups.items(), key=lambda item: (":" in item[0], item[0])):
        print(f"  {name[:62]:62} {_figures(pairs)}")


def _figures(pairs: Sequence[tuple[bool, float]]) -> str:
    right = sum((chance >= 0.5) == needed for needed, chance in pairs) / len(pairs)
    without = [chance for needed, chance in pairs if not needed]
    with_tool = [chance for needed, chance in pairs if needed]
    false = f"{sum(c >= 0.5 for c in without) / len(without):7.1%}" if without else "      -"
    missed = f"{sum(c < 0.5 for c in with_tool) / len(with_tool):7.1%}" if with_tool else "      -"
    none = f"{sum(c <= 0.4 for c in with_tool) / len(with_tool):7.1%}" if with_tool else "      -"
    return f"{len(pairs):5} {right:7.1%} {false} {missed} {none}"


def judge_set(path: Path, reader: SignalReader, encoder: Any | None, *, wrong: bool) -> None:
    """How the shipped judge does on requests of another source."""
    requests = load_requests(path, reader, encoder)
    judge = NeedClassifier(NarrowSettings())
    needs = [judge.classify(r.text, r.signals, r.history, r.vector) for r in requests]
    report(f"{path.parent.name}/{path.name}", requests, [need.score for need in needs])
    if wrong:
        for request, need in zip(requests, needs, strict=True):
            if (need.score >= 0.5) != request.needs_tool:
                print(f"  {need.score:.2f} {request.needs_tool!s:5} {request.text[:110]!r} {need.reasons}")


def _encoder() -> Any:
    from fingerpost.narrow.dense import OnnxEncoder  # loads the model, only when asked for

    return OnnxEncoder()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--encoder", action="store_true", help="use the encoder's vectors as well")
    parser.add_argument("--judge", type=Path, nargs="*", default=[], help="sets not fitted on")
    parser.add_argument("--wrong", action="store_true", help="show what was judged wrongly there")
    parser.add_argument("--only-judge", action="store_true", help="do not fit")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    given = parser.parse_args(arguments)
    reader = SignalReader()
    reader.prepare(())
    encoder = _encoder() if given.encoder else None
    if not given.only_judge:
        refit(given.data, reader, encoder, dry=given.dry)
    for path in given.judge:
        judge_set(path, reader, encoder, wrong=given.wrong)


def refit(data: Path, reader: SignalReader, encoder: Any | None, *, dry: bool) -> None:
    everything = load_requests(data, reader, encoder)
    requests = [request for request in everything if not request.history]
    folds = np.array([zlib.crc32(request.id.encode()) % FOLDS for request in requests])
    table = tabulate(requests)
    print(f"{len(requests)} requests, {len(everything) - len(requests)} more with a conversation")
    weights, scores = fit(table, folds, vectors=False)
    report("cross-validated, words", requests, sigmoid(scores).tolist())
    if encoder is not None:
        meaning, scores = fit(table, folds, vectors=True)
        report("cross-validated, words and meaning", requests, sigmoid(scores).tolist())
        weights |= {f"meaning_{name}": value for name, value in meaning.items()}
    if not dry:
        names = np.array([cue.name for cue in CUES])
        np.savez_compressed(WEIGHTS_FILE, names=names, **weights)
        load_need_model.cache_clear()
        print(f"wrote {WEIGHTS_FILE.name}, {WEIGHTS_FILE.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
