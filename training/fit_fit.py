"""Fit the judgement "is there a suitable tool here at all?" (`fingerpost.narrow.fusion`).

Every request with known tools gives a list in which they are, and the same list
with them taken away: of one tool, of a few, of hundreds; among strangers or
among the nearest neighbours. What tells the two apart is fitted by logistic
regression, once with meaning and once for words alone.

    python -m training.fit_fit [--data FOLDER [--encoders FOLDER] [--judge SET ...]] [--out FILE]

Requests the encoder was trained on would look better understood than they will
ever be again, so each set is read with an encoder that has not seen it: our own
held-out tenth with the shipped one, and with `--data` (public sets in the record
format of `fingerpost eval`) those of `FITTED_ON` with the one in `--encoders`
that was trained without their family (`<family>.onnx`, as `training.judge` and
`training.export` make them). The sets named with `--judge` have candidates and a
label, and are only ever judged on.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from fingerpost.evals.metrics import compute_auc
from fingerpost.narrow.dense import DenseScorer, OnnxEncoder
from fingerpost.narrow.dense.model import TOKENIZER_FILE_NAME, WEIGHTS_FILE_NAME
from fingerpost.narrow.features import Rows
from fingerpost.narrow.fusion import (
    FIT_FEATURES,
    LogisticModel,
    TextEvidence,
    compute_fit_features,
    fuse_scores,
)
from fingerpost.narrow.lexical_scorer import LexicalScorer
from fingerpost.narrow.scorer import ScorerRequest, split_sentences
from training.sets import Request, RoutingSet, read_own, read_public

Floats = NDArray[np.float64]

HERE = Path(__file__).parent
NARROW = HERE.parent / "src" / "fingerpost" / "narrow"
OUT = NARROW / "fit.json"
SHIPPED = NARROW / "dense"
FITTED_ON = ("toolbench_solvable", "toolalpaca_eval", "nestful")
SIZES = (1, 1, 2, 3, 4, 6, 12, 60, 100_000)
PER_SET = 400
HARD = 0.25  # of the lists are made of the nearest neighbours
NEAR = 0.85  # a tool this like a needed one may serve as well: it is in neither list
RIDGE = 1.0
HEADS = {"both": ("meaning", "words", "tools"), "words": ("words", "tools")}


@dataclass(frozen=True, slots=True)
class Example:
    """The figures of one list, and whether a needed tool is in it."""

    source: str
    figures: dict[str, float]
    suits: bool


@dataclass(frozen=True, slots=True)
class Encoders:
    """The shipped encoder, and those trained without one family. `place` is where they are set up."""

    place: Path
    folder: Path | None
    shipped: OnnxEncoder = field(default_factory=OnnxEncoder)

    def without(self, family: str) -> OnnxEncoder:
        weights = None if self.folder is None else self.folder / f"{family}.onnx"
        if weights is None or not weights.is_file():
            return self.shipped
        place = self.place / family
        if not place.is_dir():
            place.mkdir()
            (place / WEIGHTS_FILE_NAME).symlink_to(weights.resolve())
            (place / TOKENIZER_FILE_NAME).symlink_to(SHIPPED / TOKENIZER_FILE_NAME)
        return OnnxEncoder(place)


class Bench:
    """One set, with its tools indexed."""

    def __init__(self, routing: RoutingSet, encoder: OnnxEncoder, folder: Path | None) -> None:
        self.routing = routing
        self.cards = [tool.card for tool in routing.tools]
        self.words = LexicalScorer()
        self.words.prepare(self.cards)
        self.meaning = DenseScorer(encoder, folder=folder, workers=2)
        self.meaning.prepare(self.cards)
        if not self.meaning.wait(3600):
            message = f"the tools of {routing.name} could not be encoded in an hour"
            raise TimeoutError(message)

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        return np.stack([self.meaning.encode_query(tool.text.format_long()) for tool in self.routing.tools])

    def evidence(self, request: Request) -> TextEvidence:
        query = ScorerRequest(text=request.text, sentences=split_sentences(request.text))
        return fuse_scores(
            self.words.scores(query, self.cards),
            self.meaning.scores(query, self.cards),
            self.meaning.get_weight(query.signals),
        )


def examples(bench: Bench, rng: random.Random) -> Iterator[Example]:
    """Lists with and without the needed tools, for requests drawn from the set."""
    useful = [request for request in bench.routing.requests if request.groups and request.text.strip()]
    for request in rng.sample(useful, min(PER_SET, len(useful))):
        evidence = bench.evidence(request)
        needed = sorted({row for group in request.groups for row in group})
        others = _others(bench, evidence, needed)
        if not len(others):
            continue
        size = min(rng.choice(SIZES), len(others))
        hard = rng.random() < HARD
        drawn = others[:size] if hard else np.array(rng.sample(others.tolist(), size), np.intp)
        for suits in (True, False):
            rows = np.array([*needed, *drawn[len(needed) :]], np.intp) if suits else drawn
            yield Example(bench.routing.name, compute_fit_features(evidence, np.sort(rows)), suits)


def _others(bench: Bench, evidence: TextEvidence, needed: Sequence[int]) -> Rows:
    """Every tool that would not do, the nearest to the request first."""
    alike = (bench.vectors @ bench.vectors[list(needed)].T).max(axis=1)
    names = {bench.cards[row].name for row in needed}
    order: list[int] = np.argsort(-evidence.base).tolist()
    strange = [
        row for row in order if alike[row] < NEAR and row not in needed and bench.cards[row].name not in names
    ]
    return np.array(strange, np.intp)


def fit(found: Sequence[Example], names: Sequence[str]) -> LogisticModel:
    """Every source counts the same, however many requests it has."""
    counts = Counter(example.source for example in found)
    weights = np.array([len(found) / len(counts) / counts[example.source] for example in found])
    rows = np.array([[example.figures[name] for name in names] for example in found])
    labels = np.array([float(example.suits) for example in found])
    bias, coefficients = _logistic(rows, labels, weights)
    return LogisticModel(bias, dict(zip(names, coefficients.tolist(), strict=True)))


def _logistic(rows: Floats, labels: Floats, weights: Floats) -> tuple[float, Floats]:
    """Logistic regression with a small ridge, by Newton's method: the bias and the coefficients."""
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    inputs = np.column_stack([np.ones(len(rows)), (rows - mean) / spread])
    ridge = RIDGE * np.eye(inputs.shape[1])
    ridge[0, 0] = 0.0
    beta = np.zeros(inputs.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-inputs @ beta))
        slope = inputs.T @ (weights * (labels - chance)) - ridge @ beta
        curve = (inputs * (weights * chance * (1 - chance))[:, None]).T @ inputs + ridge
        step = np.linalg.solve(curve, slope)
        beta += step
        if float(np.abs(step).max()) < 1e-8:
            break
    coefficients = beta[1:] / spread
    return float(beta[0] - (coefficients * mean).sum()), coefficients


def off_by(labels: Sequence[bool], chances: Sequence[float], bins: int = 8) -> float:
    """How far the probabilities are from what happened, on average over groups of like ones."""
    said, true = np.array(chances, np.float64), np.array(labels, np.float64)
    order = np.argsort(said)
    edges = [round(place * len(order) / bins) for place in range(bins + 1)]
    parts = [order[start:end] for start, end in pairwise(edges) if end > start]
    return sum(abs(float(said[part].mean() - true[part].mean())) for part in parts) / len(parts)


def judged_on(routing: RoutingSet, encoder: OnnxEncoder, folder: Path | None) -> list[Example]:
    """The lists of a set whose requests come with candidates and a label."""
    bench = Bench(routing, encoder, folder)
    return [
        Example(
            routing.name,
            compute_fit_features(bench.evidence(request), np.array(sorted(set(request.candidates)), np.intp)),
            request.needs_tool,
        )
        for request in routing.requests
        if request.candidates
    ]


def tell(source: str, head: str, model: LogisticModel, found: Sequence[Example]) -> None:
    labels = [example.suits for example in found]
    chances = [model.predict_probability(example.figures) for example in found]
    told_apart = compute_auc(np.array(chances, np.float64), np.array(labels, np.bool_))
    print(
        f"{source:29} {head:6} lists {len(found):5}  AUC {told_apart:.3f}"
        f"  off by {off_by(labels, chances):.3f}"
    )


def report(models: dict[str, LogisticModel], found: Sequence[Example]) -> None:
    """The models, and how well each source is judged by a model fitted without it."""
    for head, model in models.items():
        shown = ", ".join(f"{name} {value:+.2f}" for name, value in model.coefficients.items())
        print(f"{head}: {model.bias:+.2f}, {shown}")
        for source in sorted({example.source for example in found}):
            others = fit([one for one in found if one.source != source], HEADS[head])
            tell(f"{source}, left out", head, others, [one for one in found if one.source == source])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--data", type=Path, help="a folder of public sets")
    options.add_argument("--encoders", type=Path, help="a folder of encoders, each without one family")
    options.add_argument("--judge", nargs="*", default=[], help="sets to judge on")
    options.add_argument("--vectors", type=Path, help="a folder to keep vectors in")
    options.add_argument("--out", type=Path, default=OUT)
    asked = options.parse_args()
    rng = random.Random(7)
    with TemporaryDirectory() as folder:
        encoders = Encoders(Path(folder), asked.encoders)
        sources = read_own(HERE / "data", held_out=True)
        sources += read_public(asked.data, FITTED_ON) if asked.data else []
        benches = (Bench(routing, encoders.without(routing.family), asked.vectors) for routing in sources)
        found = [example for bench in benches for example in examples(bench, rng)]
        models = {head: fit(found, names) for head, names in HEADS.items()}
        report(models, found)
        for routing in read_public(asked.data, asked.judge) if asked.data else []:
            lists = judged_on(routing, encoders.without(routing.family), asked.vectors)
            for head, model in models.items():
                tell(routing.name, head, model, lists)
    asked.out.write_text(json.dumps(_written(models), indent=2) + "\n", encoding="utf-8")


def _written(models: dict[str, LogisticModel]) -> dict[str, dict[str, float]]:
    return {
        head: {"bias": round(model.bias, 4)}
        | {name: round(model.coefficients[name], 4) for name in FIT_FEATURES if name in model.coefficients}
        for head, model in models.items()
    }


if __name__ == "__main__":
    main()
