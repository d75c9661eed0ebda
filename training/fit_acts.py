"""Fits the model that judges sentences of definitions (`fingerpost/catalog/act_model.py`).

    python -m training.fit_acts --data FOLDER   fit, print figures, write the weights

Examples: definitions, sentences and templates in `data/acts` (ours), the development part of the corpus of
`benchmarks/poison.py`, harmless definitions in `data/tools-*.jsonl` (ours), and of FOLDER the sets in
`LICENSED`. Vectors of words are those of the routing encoder, in fewer dimensions. Of a poisoned definition
of the corpus only the sentence that scores highest counts as an example. Takes about two minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from benchmarks.poison import CORPUS

from fingerpost.catalog import act_model
from fingerpost.catalog.act_model import FLAGS, REACH, ActModel, ReadSentence, iterate_bases
from fingerpost.catalog.injection import read_definition
from fingerpost.narrow.dense import OnnxEncoder

DATA: Final = Path(__file__).parent / "data"
WEIGHTS: Final = Path(act_model.__file__).parent / act_model.WEIGHTS_FILE
# Apache 2.0 or MIT. Only weights are fitted to them; no text of theirs is kept.
LICENSED: Final = (
    "bfcl",
    "bfcl_multi_turn",
    "docker_mcp_registry_part",
    "nestful",
    "toolalpaca_eval",
    "when2call_judge300",
)
SIZE, VALUES, EPOCHS, BATCH = 64, 64, 14, 256
COMMON: Final = 15_000  # words of the tokenizer, which are sorted by frequency
Array = Any
Definition = tuple[str, dict[str, Any]]
Group = list[list[ReadSentence]]  # sentences of each definition


def iterate_templates(file: str, count: int, rng: random.Random) -> Iterator[str]:
    """Yield sentences that the templates of a file give: `{a|b}` is a choice, `NAME` a slot."""
    slots: dict[str, list[str]] = json.loads((DATA / "acts/slots.json").read_text())["slots"]
    slot = re.compile(f"(?<![A-Z_])({'|'.join(sorted(slots, key=len, reverse=True))})(?![A-Z_])")
    for line in iterate_lines(file):
        for _ in range(count):
            text = re.sub(r"\{([^{}]*)\}", lambda found: rng.choice(found[1].split("|")), line)
            for _ in range(3):
                text = slot.sub(lambda found: rng.choice(slots[found[1]]), text)
            yield text[0].upper() + text[1:]


def iterate_lines(file: str) -> Iterator[str]:
    for line in (DATA / "acts" / file).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("# "):
            yield line


def build_tool(description: str, parameter: str = "", name: str = "value") -> Definition:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"type": "string", "description": parameter}},
    }
    tool: dict[str, Any] = {"name": "do_thing", "description": description}
    return "x", tool | {"inputSchema": schema} if parameter else tool


def place_sentences(texts: Iterable[str], rng: random.Random, *, harmless: bool) -> Iterator[Definition]:
    """Yield tools in which these sentences stand. A text that begins with `P: ` describes a parameter."""
    openings: list[str] = json.loads((DATA / "acts/slots.json").read_text())["openings"]
    names = ("note", "value", "extra", "ctx", "meta", "reason", "trace")
    for text in texts:
        if text.startswith("P: "):
            yield build_tool(rng.choice(openings), text[3:], rng.choice(names))
            continue
        yield build_tool(f"{rng.choice(openings)} {text}")
        if harmless or rng.random() < 0.12:
            yield build_tool(rng.choice(openings), text, rng.choice(names))
        if harmless:
            yield build_tool(text)


def iterate_corpus(*, poisoned: bool, held_out: bool) -> Iterator[Definition]:
    for line in CORPUS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if (row["poisoned"], row["held_out"]) == (poisoned, held_out):
            yield row["server"], row["definition"] | {"instructions": row.get("instructions", "")}


class Written(NamedTuple):
    """A definition that an author wrote, with the texts in it that steer the model."""

    author: str
    poisoned: bool
    server: str
    definition: dict[str, Any]
    spans: tuple[str, ...]


def iterate_written() -> Iterator[Written]:
    """Yield the definitions of `data/acts/definitions-*.jsonl`, one file for each author."""
    for file in sorted((DATA / "acts").glob("definitions-*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            given = {"instructions": row["instructions"]} if "instructions" in row else {}
            spans = tuple(" ".join(span.split()) for span in row.get("spans", ()))
            yield Written(file.stem, row["poisoned"], row.get("server", "x"), row["tool"] | given, spans)


def is_span(text: str, spans: Iterable[str]) -> bool:
    """Return whether a sentence is much of a marked text: authors may split sentences elsewhere."""
    one = _cut_letters(" ".join(text.split()))
    marked = [_cut_letters(span) for span in spans]
    return any(len(one & other) > min(0.4 * len(one), 0.6 * len(other)) for other in marked)


def _cut_letters(text: str) -> set[str]:
    return {text[at : at + 8] for at in range(max(1, len(text) - 7))}


def read_written(*, poisoned: bool) -> Group:
    """Read the written definitions; of poisoned ones only the marked sentences."""
    found: Group = []
    for one in iterate_written():
        if one.poisoned is poisoned:
            sentences = read_definition(one.server, one.definition)
            found.append([each.read for each in sentences if not poisoned or is_span(each.text, one.spans)])
    return found


def iterate_tools(files: Iterable[Path]) -> Iterator[Definition]:
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            tool: dict[str, Any] = {"name": row["name"], "description": row.get("description") or ""}
            tool["inputSchema"] = row.get("input_schema") or row.get("inputSchema")
            yield str(row.get("server", "x")), tool


def read_all(definitions: Iterable[Definition]) -> Group:
    return [[one.read for one in read_definition(*each)] for each in definitions]


def read_examples(folder: Path) -> dict[str, Group]:
    rng = random.Random(1)
    parameters = (f"P: {text}" for text in iterate_templates("poisoned-parameter-templates.txt", 10, rng))
    made = [*iterate_templates("poisoned-templates.txt", 10, rng), *parameters]
    return {
        "made": read_all(place_sentences(made, rng, harmless=False)),
        "made harmless": read_all(
            place_sentences(iterate_templates("harmless-templates.txt", 4, rng), rng, harmless=True)
        ),
        "written": read_all(place_sentences(iterate_lines("poisoned.txt"), rng, harmless=False)),
        "written harmless": read_all(place_sentences(iterate_lines("harmless.txt"), rng, harmless=True)),
        "by authors": read_written(poisoned=True),
        "by authors harmless": read_written(poisoned=False),
        "corpus": read_all(iterate_corpus(poisoned=True, held_out=False)),
        "corpus harmless": read_all(iterate_corpus(poisoned=False, held_out=False)),
        "held out": read_all(iterate_corpus(poisoned=True, held_out=True)),
        "held out harmless": read_all(iterate_corpus(poisoned=False, held_out=True)),
        "ours": read_all(iterate_tools(sorted(DATA.glob("tools-*.jsonl")))),
        "licensed": read_all(iterate_tools(folder / name / "tools.jsonl" for name in LICENSED)),
    }


def encode_words(groups: Iterable[Group]) -> tuple[list[str], Array, Array]:
    """Return words, and their vectors of bytes with the scale of each dimension. The first is empty."""
    tokenizer = json.loads((Path(act_model.__file__).parents[1] / "narrow/dense/tokenizer.json").read_text())
    common = [word for word in tokenizer["model"]["vocab"] if re.fullmatch("[a-z]{2,}", word)]
    used = {word for group in groups for each in group for read in each for word in read.words}
    known = set(common)
    other = {word for word in used if re.fullmatch("[a-z]{3,20}", word)} - known
    missing = sorted(word for word in other if known.isdisjoint(iterate_bases(word)))
    words = common[:COMMON] + sorted((used & known) - set(common[:COMMON])) + missing
    encoder = OnnxEncoder()
    wide = np.stack([encoder.encode(word) for word in words]).astype(np.float64)
    centred = wide - wide.mean(0)
    axes = np.linalg.eigh(centred.T @ centred)[1][:, -SIZE:]
    vectors = centred @ axes
    vectors /= vectors.std()
    scale: Array = np.abs(vectors).max(0) / 127
    rows = np.zeros((len(vectors) + 1, SIZE), np.int8)
    rows[1:] = np.round(vectors / scale)
    return ["", *words], rows, scale.astype(np.float32)


class Network:
    """The network while it is fitted: Adam, with dropout of words, classes and values."""

    def __init__(self, vectors: Array, classes: Sequence[str], numbers: Any, rng: Any) -> None:
        self.vectors, self.numbers, self.rng = vectors, numbers, rng
        self.classes = {name: number for number, name in enumerate(classes)}
        size = vectors.shape[1] + len(classes)
        deviation = 0.5 / np.sqrt(size * (2 * REACH + 1) * 0.3)
        self.parts: dict[str, Array] = {
            "window": (rng.normal(size=(2 * REACH + 1, size, VALUES)) * deviation).astype(np.float32),
            "bias": np.zeros(VALUES, np.float32),
            "weights": (rng.normal(size=VALUES) * 0.1).astype(np.float32),
            "flags": np.zeros(len(FLAGS), np.float32),
            "by_flag": np.zeros((len(FLAGS), VALUES), np.float32),
            "start": np.zeros(1, np.float32),
        }
        self.means = {name: np.zeros_like(part) for name, part in self.parts.items()}
        self.squares = {name: np.zeros_like(part) for name, part in self.parts.items()}
        self.steps = 0

    def pack(self, sentences: Sequence[ReadSentence], drop: float) -> tuple[Array, Array, Array, Array]:
        starts: list[int] = []
        valid: list[bool] = []
        size = self.vectors.shape[1]
        flags = np.zeros((len(sentences), len(FLAGS)), np.float32)
        length = sum(len(each.words) + REACH for each in sentences) + REACH
        inputs = np.zeros((length, size + len(self.classes)), np.float32)
        place = 0
        for index, each in enumerate(sentences):
            place += REACH
            valid += [False] * REACH + [True] * len(each.words)
            starts.append(place)
            inputs[place : place + len(each.words), :size] = self.vectors[
                [self.numbers(w) for w in each.words]
            ]
            for named in each.classes:
                inputs[place, [size + self.classes[name] for name in named]] = 1
                place += 1
            flags[index, [FLAGS.index(flag) for flag in each.flags]] = 1
        if drop:
            inputs[self.rng.random(length) < drop, :size] = 0
            inputs[self.rng.random(length) < drop, size:] = 0
        return inputs, np.array(starts), np.array([*valid, *[False] * REACH]), flags

    def run(self, inputs: Array, starts: Array, valid: Array) -> tuple[Array, Array]:
        values = np.tile(self.parts["bias"], (len(inputs), 1))
        for offset in range(-REACH, REACH + 1):
            part = inputs @ self.parts["window"][offset + REACH]
            if offset < 0:
                values[-offset:] += part[:offset]
            elif offset > 0:
                values[:-offset] += part[offset:]
            else:
                values += part
        values[~valid] = -1e9
        return values, np.maximum.reduceat(values, starts, axis=0)

    def add_up(self, best: Array, flags: Array) -> Array:
        parts = self.parts
        by_flag = ((flags @ parts["by_flag"]) * best).sum(1)
        return best @ parts["weights"] + flags @ parts["flags"] + by_flag + parts["start"][0]

    def score(self, sentences: Sequence[ReadSentence]) -> Array:
        found: list[Array] = []
        for place in range(0, len(sentences), 512):
            inputs, starts, valid, flags = self.pack(sentences[place : place + 512], 0)
            found.append(self.add_up(np.maximum(self.run(inputs, starts, valid)[1], 0), flags))
        return np.concatenate(found)

    def learn(self, sentences: Sequence[ReadSentence], labels: Array, shares: Array, rate: float) -> None:
        inputs, starts, valid, flags = self.pack(sentences, 0.1)
        values, top = self.run(inputs, starts, valid)
        kept = (self.rng.random(top.shape) > 0.3) / np.float32(0.7)
        best = (np.maximum(top, 0) * kept).astype(np.float32)
        likely = 1 / (1 + np.exp(-np.clip(self.add_up(best, flags), -30, 30)))
        error = ((likely - labels) * shares / shares.sum()).astype(np.float32)
        parts = self.parts
        spread = error[:, None] * (parts["weights"][None] + flags @ parts["by_flag"]) * kept * (top > 0)
        owner = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(inputs))))
        slope = np.zeros_like(values)
        slope[starts[0] :] = (values[starts[0] :] == top[owner]) * spread[owner]
        window = np.zeros_like(parts["window"])
        for offset in range(-REACH, REACH + 1):
            if offset < 0:
                window[offset + REACH] = inputs[:offset].T @ slope[-offset:]
            elif offset > 0:
                window[offset + REACH] = inputs[offset:].T @ slope[:-offset]
            else:
                window[REACH] = inputs.T @ slope
        gradients = {
            "window": window,
            "bias": slope.sum(0),
            "weights": best.T @ error,
            "flags": flags.T @ error,
            "by_flag": flags.T @ (error[:, None] * best),
            "start": np.array([error.sum()]),
        }
        self.steps += 1
        for name, gradient in gradients.items():
            self.means[name] = 0.9 * self.means[name] + 0.1 * gradient
            self.squares[name] = 0.999 * self.squares[name] + 0.001 * gradient * gradient
            step = self.means[name] / (1 - 0.9**self.steps)
            step = step / (np.sqrt(self.squares[name] / (1 - 0.999**self.steps)) + 1e-8)
            if name in ("window", "by_flag", "weights"):
                step = step + 0.02 * parts[name]
            parts[name] = (parts[name] - rate * step).astype(np.float32)


def choose_examples(
    network: Network, examples: dict[str, Group], epoch: int, rng: Any
) -> list[tuple[ReadSentence, float, float]]:
    """Return sentences with label and weight for one pass."""
    chosen: list[tuple[ReadSentence, float, float]] = []
    for each in examples["made"]:
        chosen += [(one, 0.0, 0.3) if "opening" in one.flags else (one, 1.0, 1.0) for one in each]
    for name in ("written", "by authors", "corpus"):
        for each in filter(None, examples[name]):
            late = [one for one in each if "opening" not in one.flags] or each
            likely = late[-1] if epoch < 2 else each[int(network.score(each).argmax())]
            chosen.append((likely, 1.0, 2.0))
    for name in ("made harmless", "written harmless", "by authors harmless", "corpus harmless"):
        chosen += [(one, 0.0, 1.0) for each in examples[name] for one in each]
    for name, weight in (("ours", 0.5), ("licensed", 0.3)):
        real = [one for each in examples[name] for one in each]
        hard: list[int] = []
        if epoch >= 2:
            hard = list(np.argsort(-network.score(real))[: len(real) // 10])
        more = rng.sample(range(len(real)), min(len(real), 7000))
        chosen += [(real[int(number)], 0.0, weight) for number in (*hard, *more)]
    rng.shuffle(chosen)
    return chosen


def fit(
    examples: dict[str, Group], seed: int, vectors: Array, classes: Sequence[str], numbers: Any
) -> Network:
    rng = np.random.default_rng(seed)
    network = Network(vectors, classes, numbers, rng)
    for epoch in range(EPOCHS):
        chosen = choose_examples(network, examples, epoch, random.Random(seed * 100 + epoch))
        for place in range(0, len(chosen), BATCH):
            part = chosen[place : place + BATCH]
            labels, shares = (np.array([each[field] for each in part], np.float32) for field in (1, 2))
            network.learn([each[0] for each in part], labels, shares, 0.002 * (1 - 0.8 * epoch / EPOCHS))
    return network


def print_figures(model: Any, examples: dict[str, Group]) -> None:
    for name, group in examples.items():
        flat = [one for each in group for one in each]
        scores = iter(model.score(flat))
        tops = np.array([max((next(scores) for _ in each), default=-99.0) for each in group])
        shares = ", ".join(f"{limit}: {(tops >= limit).mean():.3f}" for limit in (-4, -3, -2, 0, 2, 3.5))
        print(f"{name:18} {len(group):6}  {shares}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    examples = read_examples(options.data)
    words, quantised, scale = encode_words(examples.values())
    known = {word: number for number, word in enumerate(words)}

    def get_number(word: str) -> int:
        return next((known[base] for base in iterate_bases(word) if base in known), 0)

    classes = act_model.list_classes()
    network = fit(examples, options.seed, quantised * scale, classes, get_number)
    packed = {name: part.astype(np.float16) for name, part in network.parts.items()}
    named = np.frombuffer("\n".join(words).encode(), np.uint8)
    np.savez_compressed(options.out, words=named, vectors=quantised, scale=scale, **packed)
    print_figures(ActModel(dict(np.load(options.out))), examples)


if __name__ == "__main__":
    main()
