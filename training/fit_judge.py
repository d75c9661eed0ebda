"""Fits the judge of sentences: a small MiniLM that says whether a sentence of a definition steers the model.

    python -m training.judge_examples --data FOLDER --out examples.jsonl.gz
    python -m training.fit_judge prepare --model FOLDER --examples FILE --out START   (fewer words)
    python -m training.fit_judge fit --start START --examples FILE --out FOLDER

The second command takes the base weights, the third writes the model. `--without AUTHOR ...` leaves authors
out and prints what is found of them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from training.encoder import HIDDEN, Layer

COMMON_WORDS, COMMON_PIECES, MIN_USED = 7000, 1500, 8
LONGEST: Final = 128
SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNK, CLS, SEP, MASK = range(5)
HELD_OUT: Final = ("own-held-out", "fresh-held-out", "outside-held-out", "examiner-held-out")
MIN_SCORE: Final = -3.0  # of the act model: sentences below it are not shown to the judge
Array = Any


class Judge(nn.Module):
    """Token ids in; one value for each text: above 0 if its first part steers the model."""

    def __init__(self, words: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, HIDDEN)
        self.positions = nn.Embedding(LONGEST, HIDDEN)
        self.segments = nn.Embedding(2, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.head = nn.Linear(2 * HIDDEN, 1)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        ends = (ids == SEP).to(torch.int64)
        first = ((ends.cumsum(1) - ends) == 0).to(torch.float32) * mask.to(torch.float32)
        x = self.words(ids) + self.positions.weight[: ids.shape[1]]
        x = (
            x
            + self.segments.weight[0]
            + (1 - first[:, :, None]) * (self.segments.weight[1] - self.segments.weight[0])
        )
        x = self.dropout(self.norm(x))
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, hidden)
        x = x.float()
        mean = (x * first[:, :, None]).sum(1) / first.sum(1, keepdim=True)
        return self.head(self.dropout(torch.cat([x[:, 0], mean], dim=1))).squeeze(1)


def read_rows(examples: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(examples, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def prepare(model: Path, examples: Path, out: Path) -> None:
    """Keep the words that occur in the examples, and common ones."""
    described = json.loads((model / "tokenizer.json").read_text())
    old: dict[str, int] = described["model"]["vocab"]
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    used: defaultdict[int, int] = defaultdict(int)
    for row in read_rows(examples):
        if not row["author"].startswith("real-"):
            for text, _, _ in row["sentences"]:
                for number in tokenizer.encode(text, add_special_tokens=False).ids:
                    used[number] += 1
    words = [token for token in old if re.fullmatch("[a-z]{2,}", token)][:COMMON_WORDS]
    pieces = [token for token in old if re.fullmatch("##[a-z]+", token)][:COMMON_PIECES]
    letters = [token for token in old if re.fullmatch(r"(##)?[\x21-\x7e]", token)]
    kept = {*words, *pieces, *letters, *(token for token, number in old.items() if used[number] >= MIN_USED)}
    order = [*SPECIAL, *sorted(kept - set(SPECIAL), key=old.__getitem__)]
    described["model"]["vocab"] = {token: number for number, token in enumerate(order)}
    for token in described["added_tokens"]:
        token["id"] = SPECIAL.index(token["content"])
    described["post_processor"] = described["padding"] = described["truncation"] = None
    out.mkdir(parents=True, exist_ok=True)
    (out / "tokenizer.json").write_text(json.dumps(described, ensure_ascii=False, separators=(",", ":")))
    base = safetensors.numpy.load_file(model / "model.safetensors")
    base = {
        name: tensor for name, tensor in base.items() if "pooler" not in name and "position_ids" not in name
    }
    table = base["embeddings.word_embeddings.weight"]
    base["embeddings.word_embeddings.weight"] = table[[old[token] for token in order]]
    base["embeddings.position_embeddings.weight"] = base["embeddings.position_embeddings.weight"][:LONGEST]
    halved = {name: np.ascontiguousarray(tensor.astype(np.float16)) for name, tensor in base.items()}
    safetensors.numpy.save_file(halved, out / "model.safetensors")
    print(len(order), "tokens")


_LAYER_NAMES = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attended": "attention.output.dense",
    "attended_norm": "attention.output.LayerNorm",
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "outer_norm": "output.LayerNorm",
}


def load_start(start: Path, kept: Sequence[int]) -> Judge:
    base = {name: tensor.float() for name, tensor in load_file(str(start / "model.safetensors")).items()}
    judge = Judge(len(base["embeddings.word_embeddings.weight"]), len(kept))
    state = judge.state_dict()
    state["words.weight"] = base["embeddings.word_embeddings.weight"]
    state["positions.weight"] = base["embeddings.position_embeddings.weight"]
    state["segments.weight"] = base["embeddings.token_type_embeddings.weight"][:1].repeat(2, 1)
    state["norm.weight"] = base["embeddings.LayerNorm.weight"]
    state["norm.bias"] = base["embeddings.LayerNorm.bias"]
    for number, source in enumerate(kept):
        for ours, theirs in _LAYER_NAMES.items():
            for kind in ("weight", "bias"):
                state[f"layers.{number}.{ours}.{kind}"] = base[f"encoder.layer.{source}.{theirs}.{kind}"]
    judge.load_state_dict(state)
    return judge


class Sentence:
    """A sentence as token ids by part, its label, and the score of the act model."""

    __slots__ = ("label", "parts", "score")

    def __init__(self, parts: list[list[int]], label: int, score: float) -> None:
        self.parts, self.label, self.score = parts, label, score

    def write(self, rng: random.Random | None, drop: float, mask: float) -> list[int]:
        ids = [CLS, *self.parts[0], SEP]
        for part in self.parts[1:]:
            if rng is None or rng.random() >= drop:
                ids += part
            ids.append(SEP)
        ids = [*ids[: LONGEST - 1], SEP] if len(ids) > LONGEST else ids
        if rng is not None and mask:
            ids = [MASK if each > MASK and rng.random() < mask else each for each in ids]
        return ids


class Definition:
    """A definition by an author."""

    def __init__(self, author: str, poisoned: bool, sentences: list[Sentence]) -> None:
        self.author, self.poisoned, self.sentences = author, poisoned, sentences


def read_definitions(examples: Path, start: Path) -> list[Definition]:
    tokenizer = Tokenizer.from_file(str(start / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    found: list[Definition] = []
    for row in read_rows(examples):
        split = [text.split(" [SEP] ") for text, _, _ in row["sentences"]]
        flat = [part for parts in split for part in parts]
        ids = iter(tokenizer.encode_batch(flat, add_special_tokens=False) if flat else [])
        made = [
            Sentence([next(ids).ids for _ in parts], label, score)
            for parts, (_, label, score) in zip(split, row["sentences"], strict=True)
        ]
        found.append(Definition(row["author"], row["poisoned"], made))
    return found


def pad(rows: Sequence[Sequence[int]], device: str) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    ids = np.full((len(rows), width), PAD, np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    found = torch.from_numpy(ids).to(device)
    return found, (found != PAD).to(torch.int64)


@torch.no_grad()
def score(judge: Judge, sentences: Sequence[Sentence], device: str) -> Array:
    judge.eval()
    rows = [one.write(None, 0, 0) for one in sentences]
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    values = np.zeros(len(rows), np.float32)
    for place in range(0, len(order), 512):
        part = order[place : place + 512]
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            values[part] = judge(*pad([rows[index] for index in part], device)).float().cpu().numpy()
    return values


def choose(
    judge: Judge | None, definitions: Sequence[Definition], rng: random.Random, device: str, easy: int
) -> list[tuple[Sentence, float, float]]:
    """Return sentences with label and weight for one pass."""
    chosen: list[tuple[Sentence, float, float]] = []
    unknown = [one for one in definitions if one.sentences and one.sentences[0].label == -1]
    flat = [each for one in unknown for each in one.sentences]
    scores = iter(score(judge, flat, device) if judge else [each.score for each in flat])
    for one in unknown:
        likely = max(
            zip([float(next(scores)) for _ in one.sentences], one.sentences, strict=True), key=lambda x: x[0]
        )
        chosen.append((likely[1], 1.0, 1.0))
    rest: list[Sentence] = []
    for one in definitions:
        real = one.author in ("ours", "licensed")
        for each in one.sentences:
            if each.label == 1:
                chosen.append((each, 1.0, 0.5 if one.author == "made" else 1.0))
            elif each.label == 0 and not real:
                chosen.append((each, 0.0, 1.0 if each.score > -6 else 0.5))
            elif each.label == 0 and each.score > -4:
                chosen.append((each, 0.0, 1.0))
            elif each.label == 0:
                rest.append(each)
    chosen += [(each, 0.0, 0.5) for each in rng.sample(rest, min(easy, len(rest)))]
    rng.shuffle(chosen)
    return chosen


def fit(
    definitions: Sequence[Definition], judge: Judge, options: argparse.Namespace, seed: int, device: str
) -> Judge:
    torch.manual_seed(seed)
    rng = random.Random(seed)
    judge.to(device).train()
    decayed = [p for p in judge.parameters() if p.requires_grad and p.ndim > 1]
    plain = [p for p in judge.parameters() if p.requires_grad and p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=options.rate
    )
    average: dict[str, Tensor] | None = None
    step, total = 0, 1
    for epoch in range(options.epochs):
        chosen = choose(judge if epoch else None, definitions, rng, device, options.easy)
        steps = -(-len(chosen) // options.batch)
        total = max(total, steps * options.epochs)
        judge.train()
        for place in range(0, len(chosen), options.batch):
            part = chosen[place : place + options.batch]
            for group in optimizer.param_groups:
                group["lr"] = options.rate * min(1.0, step / (0.06 * total)) * max(0.02, 1 - step / total)
            ids, mask = pad([one.write(rng, options.drop, options.mask) for one, _, _ in part], device)
            labels = torch.tensor([label for _, label, _ in part], device=device)
            if options.smooth:
                labels = labels * (1 - 2 * options.smooth) + options.smooth
            weights = torch.tensor([weight for _, _, weight in part], device=device)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                values = judge(ids, mask)
            loss = (
                F.binary_cross_entropy_with_logits(values.float(), labels, reduction="none") * weights
            ).sum()
            loss = loss / weights.sum()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(judge.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step > 0.6 * total:
                now = judge.state_dict()
                if average is None:
                    average = {name: tensor.clone().float() for name, tensor in now.items()}
                else:
                    for name, tensor in now.items():
                        average[name] += (tensor.float() - average[name]) * 0.02
    if average is not None:
        judge.load_state_dict(average)
    return judge.eval()


def teach(
    teachers: Sequence[Judge],
    definitions: Sequence[Definition],
    student: Judge,
    options: argparse.Namespace,
    device: str,
) -> Judge:
    """Fit a student to what the teachers say of the sentences, some with the surroundings of others."""
    torch.manual_seed(1)
    rng = random.Random(1)
    student.to(device)
    optimizer = torch.optim.AdamW(student.parameters(), lr=options.rate, weight_decay=0.01)
    every = [each for one in definitions for each in one.sentences]
    suspected = [each for each in every if each.score > MIN_SCORE - 2 or each.label]
    average = {name: tensor.clone().float() for name, tensor in student.state_dict().items()}
    step, total = 0, 1
    for _ in range(options.student_epochs):
        chosen = [each for each, _, _ in choose(teachers[0], definitions, rng, device, options.easy)]
        for _ in range(options.mixed):
            one, other = rng.choice(suspected), rng.choice(every)
            chosen.append(Sentence([one.parts[0], *other.parts[1:]], 0, 0.0))
        rng.shuffle(chosen)
        total = max(total, -(-len(chosen) // options.batch) * options.student_epochs)
        student.train()
        for place in range(0, len(chosen), options.batch):
            for group in optimizer.param_groups:
                group["lr"] = options.rate * min(1.0, step / (0.06 * total)) * max(0.02, 1 - step / total)
            rows = [
                one.write(rng, options.drop, options.mask) for one in chosen[place : place + options.batch]
            ]
            ids, mask = pad(rows, device)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                with torch.no_grad():
                    target = torch.stack([teacher(ids, mask).float() for teacher in teachers]).mean(0)
                values = student(ids, mask).float()
            loss = F.binary_cross_entropy_with_logits(values, torch.sigmoid(target))
            loss = loss + 0.05 * F.smooth_l1_loss(values, target)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            step += 1
            pace = 0.02 if step > 0.5 * total else 1.0
            for name, tensor in student.state_dict().items():
                average[name] += (tensor.float() - average[name]) * pace
    student.load_state_dict(average)
    return student.eval()


def keep_layers(judge: Judge, kept: Sequence[int]) -> Judge:
    """Return a copy with some of the layers."""
    student = Judge(judge.words.num_embeddings, len(judge.layers))
    student.load_state_dict({name: tensor.cpu() for name, tensor in judge.state_dict().items()})
    student.layers = nn.ModuleList(student.layers[place] for place in kept)
    return student


def export(judge: Judge, start: Path, folder: Path) -> None:
    """Write the judge as an encoder of `fingerpost/narrow/dense`: int8, and the tokenizer beside it.

    The encoder makes unit vectors, so the value stands beside a one.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.judge = judge.cpu().float().eval()

        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            value = self.judge(ids, mask)
            return torch.stack([value, torch.ones_like(value)], dim=1)

    ids = torch.full((2, 16), 9, dtype=torch.int64)
    ids[:, 5] = ids[:, -1] = SEP
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        plain = Path(made) / "plain.onnx"
        torch.onnx.export(
            Pair(),
            (ids, torch.ones_like(ids)),
            str(plain),
            input_names=["input_ids", "attention_mask"],
            output_names=["values"],
            dynamic_axes={
                "input_ids": {0: "texts", 1: "tokens"},
                "attention_mask": {0: "texts", 1: "tokens"},
                "values": {0: "texts"},
            },
            opset_version=17,
            dynamo=False,
        )
        quantize_dynamic(
            str(plain), str(folder / "model.onnx"), per_channel=True, weight_type=QuantType.QInt8
        )
    shutil.copy(start / "tokenizer.json", folder / "tokenizer.json")
    digest = hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    (folder / "weights.sha256").write_text(f"{digest}\n")


def score_exported(folder: Path, sentences: Sequence[Sentence]) -> Array:
    """Score with the exported model, one text at a time, as the product does."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    found: list[float] = []
    for one in sentences:
        if one.score < MIN_SCORE - 2:
            found.append(-20.0)
            continue
        ids = np.array([one.write(None, 0, 0)], np.int64)
        value, other = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0]
        found.append(float(value / other))
    return np.array(found)


def get_tops(judge_scores: Array, definitions: Sequence[Definition]) -> tuple[Array, Array]:
    """Return for each definition the highest score, and that of sentences the act model suspects."""
    scores = iter(judge_scores)
    every: list[float] = []
    suspected: list[float] = []
    for one in definitions:
        found = [(float(next(scores)), each.score) for each in one.sentences]
        every.append(max((value for value, _ in found), default=-20.0))
        suspected.append(max((value for value, act in found if act >= MIN_SCORE), default=-20.0))
    return np.array(every), np.array(suspected)


LIMITS: Final = (-3, -2, -1, 0, 1, 2, 3, 4)


def print_figures(title: str, judge_score: Any, definitions: Sequence[Definition]) -> None:
    groups: defaultdict[tuple[str, bool], list[Definition]] = defaultdict(list)
    for one in definitions:
        groups["real" if one.author.startswith("real-") else one.author, one.poisoned].append(one)
    found: dict[tuple[str, bool], Array] = {}
    for key, group in sorted(groups.items()):
        flat = [each for one in group for each in one.sentences]
        every, suspected = get_tops(judge_score(flat), group)
        found[key] = suspected
        cells = " ".join(f"{(suspected >= limit).mean():.3f}" for limit in LIMITS)
        print(
            f"{title} {key[0]:20} {key[1]!s:5} {len(group):5} {cells}  all@0 {(every >= 0).mean():.3f}",
            flush=True,
        )
    for author in sorted({author for author, poisoned in found if poisoned}):
        if (author, False) in found:
            harmless, poisoned = found[author, False], found[author, True]
            marks = []
            for share in (0.02, 0.05):
                limit = np.quantile(harmless, 1 - share) + 1e-6
                marks.append(f"R@{share:.0%}={(poisoned >= limit).mean():.3f} (limit {limit:.2f})")
            area = (poisoned[:, None] > harmless[None]).mean()
            print(f"{title} {author:20} {' '.join(marks)} area {area:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("prepare", "fit"))
    parser.add_argument("--model", type=Path)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--examples", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 1, 2, 3, 4, 5])
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--drop", type=float, default=0.25)
    parser.add_argument("--mask", type=float, default=0.2)
    parser.add_argument("--smooth", type=float, default=0.03)
    parser.add_argument("--easy", type=int, default=4000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--students", nargs="*", default=["0,1,3,5"], help="layers of each student, such as 0,1,3,5"
    )
    parser.add_argument("--student-epochs", type=int, default=5)
    parser.add_argument("--mixed", type=int, default=8000)
    parser.add_argument("--tag", default="")
    options = parser.parse_args()
    options.without += HELD_OUT
    if options.command == "prepare":
        prepare(options.model, options.examples, options.out)
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    definitions = read_definitions(options.examples, options.start)
    left_out = [one for one in definitions if one.author.startswith("real-") or one.author in options.without]
    learned = [
        one for one in definitions if not (one.author.startswith("real-") or one.author in options.without)
    ]
    judges = [
        fit(learned, load_start(options.start, options.layers), options, seed, device)
        for seed in options.seeds
    ]
    if len(judges) > 1:
        for seed, judge in zip(options.seeds, judges, strict=True):
            print_figures(
                f"{options.tag} seed {seed}", lambda flat, judge=judge: score(judge, flat, device), left_out
            )
    print_figures(
        options.tag, lambda flat: np.mean([score(j, flat, device) for j in judges], axis=0), left_out
    )
    for number, text in enumerate(options.students):
        kept = [int(each) for each in text.split(",")]
        student = teach(judges, learned, keep_layers(judges[0], kept), options, device)
        title = f"{options.tag} student {text}"
        print_figures(title, lambda flat, student=student: score(student, flat, device), left_out)
        if options.out:
            folder = options.out / f"student{number}" if len(options.students) > 1 else options.out
            export(student, options.start, folder)
            print_figures(f"{title} int8", lambda flat, folder=folder: score_exported(folder, flat), left_out)
    if options.out and not options.students:
        options.out.mkdir(parents=True, exist_ok=True)
        for seed, judge in zip(options.seeds, judges, strict=True):
            state = {name: tensor.half().cpu().contiguous() for name, tensor in judge.state_dict().items()}
            save_file(state, str(options.out / f"judge-{seed}.safetensors"))


if __name__ == "__main__":
    main()
