"""Fits the judge of sentences: a small MiniLM that says whether a sentence of a definition steers the model.

    python -m training.judge_examples --data FOLDER --out examples.jsonl.gz
    python -m training.fit_judge prepare --model FOLDER --large FILE --examples FILE --out START
    python -m training.fit_judge fit --start START --examples FILE --out FOLDER

The second command takes the base weights of MiniLM and of SmolLM2-135M (`.gguf`) and keeps the words that
occur; the third fits SmolLM2 to the examples, teaches two MiniLM what it says of them and of many sentences
that were varied or written by a second SmolLM2, and writes the mean of the two as the judge.
`--without AUTHOR ...` leaves authors out and prints what is found of them.
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
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from training.encoder import HIDDEN, Layer
from training.large_judge import LONGEST as LONGEST_PROMPT
from training.large_judge import LargeJudge, LargeTokens, pad, prepare_large, score_rows, write_prompt

COMMON_WORDS, COMMON_PIECES, MIN_USED = 7000, 1500, 8
LONGEST: Final = 128
SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNK, CLS, SEP, MASK = range(5)
# Parts of the corpus.
STYLES: Final = "own fresh outside examiner examiners auditors pages short blunt balanced"
HELD_OUT: Final = tuple(f"{style}-held-out" for style in STYLES.split())
MIN_SCORE: Final = -3.0  # of the act model: sentences below it are not shown to the judge
STARTED: Final = time.monotonic()
SEPARATOR: Final = " [SEP] "
LARGE_EPOCHS, LARGE_BATCH, LARGE_RATE = 4, 160, 1e-4
EPOCHS, BATCH, RATE = 20, 512, 5e-4
MIXED, VARIED, WRITTEN, MADE_AT_ONCE, EASY = 80_000, 120_000, 240_000, 80_000, 4000
REPLACED, ALIKE, MAX_VARIED = 0.15, 8, 400
WRITER_RATE, WRITTEN_AT_ONCE = 1e-4, 2048
KEPT_LAYERS: Final = (0, 1, 3, 5)
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


def prepare(model: Path, large: Path, examples: Path, out: Path) -> None:
    """Keep the words that occur in the examples, and common ones."""
    out.mkdir(parents=True, exist_ok=True)
    rows = list(read_rows(examples))
    prompts = [write_prompt(text.split(SEPARATOR)) for row in rows for text, _, _ in row["sentences"]]
    prepare_large(large, prompts, out)
    described = json.loads((model / "tokenizer.json").read_text())
    old: dict[str, int] = described["model"]["vocab"]
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    used: defaultdict[int, int] = defaultdict(int)
    for row in rows:
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
    """A sentence as token ids by part, its label, the score of the act model, and what SmolLM2 reads."""

    __slots__ = ("label", "large", "parts", "prompt", "score", "taught")

    def __init__(self, parts: list[list[int]], prompt: list[str], label: int, score: float) -> None:
        self.parts, self.prompt, self.label, self.score = parts, prompt, label, score
        self.large: list[int] = []
        self.taught: float | None = None  # what SmolLM2 says of it

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


def load_tokenizer(start: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(start / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def read_definitions(examples: Path, start: Path) -> list[Definition]:
    tokenizer = load_tokenizer(start)
    found: list[Definition] = []
    for row in read_rows(examples):
        split = [text.split(SEPARATOR) for text, _, _ in row["sentences"]]
        flat = [part for parts in split for part in parts]
        ids = iter(tokenizer.encode_batch(flat, add_special_tokens=False) if flat else [])
        made = [
            Sentence([next(ids).ids for _ in parts], parts, label, score)
            for parts, (_, label, score) in zip(split, row["sentences"], strict=True)
        ]
        found.append(Definition(row["author"], row["poisoned"], made))
    return found


def find_suspected(definitions: Sequence[Definition]) -> list[Sentence]:
    every = (each for one in definitions for each in one.sentences)
    return [each for each in every if each.score > MIN_SCORE - 2 or each.label == 1]


def mix_sentences(definitions: Sequence[Definition], count: int) -> list[Sentence]:
    """Return suspected sentences with the surroundings of others: only SmolLM2 says what they are."""
    rng = random.Random(7)
    every = [each for one in definitions for each in one.sentences]
    suspected = find_suspected(definitions)
    mixed: list[Sentence] = []
    for _ in range(count):
        one, other = rng.choice(suspected), rng.choice(every)
        prompt = [one.prompt[0], *other.prompt[1:]]
        mixed.append(Sentence([one.parts[0], *other.parts[1:]], prompt, -1, one.score))
    return mixed


def find_alike(start: Path) -> dict[str, list[str]]:
    """Return for each whole word those with the nearest vectors."""
    vocabulary: dict[str, int] = json.loads((start / "tokenizer.json").read_text())["model"]["vocab"]
    words = [word for word in vocabulary if re.fullmatch("[a-z]{3,}", word)]
    table = load_file(str(start / "model.safetensors"))["embeddings.word_embeddings.weight"].float()
    vectors = F.normalize(table[[vocabulary[word] for word in words]], dim=1)
    found: dict[str, list[str]] = {}
    for place in range(0, len(words), 1024):
        near = (vectors[place : place + 1024] @ vectors.T).topk(ALIKE + 1).indices[:, 1:]
        for word, row in zip(words[place:], near.tolist(), strict=False):
            found[word] = [words[index] for index in row]
    return found


CLAUSE: Final = re.compile(
    r"(?<=[,;:)])\s+|\s+(?=(?:and|or|but|so|because|before|after|when|if|then|which|that|while|unless|until|to)\b)"
)


def vary_sentences(definitions: Sequence[Definition], count: int, start: Path) -> list[Sentence]:
    """Return sentences that no author wrote: clauses of two of them, words replaced by words like them.
    Only SmolLM2 says what they are.
    """
    rng = random.Random(8)
    alike = find_alike(start)
    suspected = find_suspected(definitions)

    def replace(found: re.Match[str]) -> str:
        near = alike.get(found[0].lower())
        return rng.choice(near) if near and rng.random() < REPLACED else found[0]

    varied: list[tuple[str, Sentence]] = []
    for _ in range(count):
        one = rng.choice(suspected)
        text = one.prompt[0]
        if rng.random() < 0.6:
            first, second = CLAUSE.split(text), CLAUSE.split(rng.choice(suspected).prompt[0])
            kept = first[: rng.randint(1, len(first))] if len(first) > 1 else first
            added = second[rng.randrange(len(second)) :]
            text = " ".join((*kept, *added) if rng.random() < 0.5 else (*added, *kept))
        varied.append((re.sub(r"[A-Za-z]{3,}", replace, text)[:MAX_VARIED], one))
    ids = load_tokenizer(start).encode_batch([text for text, _ in varied], add_special_tokens=False)
    return [
        Sentence([encoded.ids, *one.parts[1:]], [text, *one.prompt[1:]], -1, one.score)
        for encoded, (text, one) in zip(ids, varied, strict=True)
    ]


def write_start(prompt: Sequence[str], *, steers: bool) -> str:
    """Return what the writer reads before a sentence: what kind it is, and its surroundings."""
    start = write_prompt(["", *prompt[1:]]).removesuffix(" \nAnswer:")
    return f"{'Steers' if steers else 'Harmless'}\n{start}"


def fit_writer(sentences: Sequence[Sentence], start: Path, tokens: LargeTokens, device: str) -> LargeJudge:
    """Fit SmolLM2 to write these sentences, given their kind and surroundings."""
    torch.manual_seed(3)
    rng = random.Random(3)
    writer = LargeJudge(start).to(device)
    optimizer = torch.optim.AdamW(writer.parameters(), lr=WRITER_RATE, fused=device == "cuda")
    starts = [write_start(each.prompt, steers=each.label == 1) for each in sentences]
    whole = [f"{text} {each.prompt[0]}\n" for text, each in zip(starts, sentences, strict=True)]
    given = map(len, tokens.encode(starts))
    rows = [
        (row, length)
        for row, length in zip(tokens.encode(whole), given, strict=True)
        if len(row) < LONGEST_PROMPT
    ]
    rows.sort(key=lambda each: len(each[0]) + 20 * rng.random())
    batches = [rows[at : at + LARGE_BATCH] for at in range(0, len(rows), LARGE_BATCH)]
    rng.shuffle(batches)
    writer.train()
    for number, batch in enumerate(batches):
        set_rate(optimizer, WRITER_RATE * compute_rate(number / len(batches)))
        ids, mask = pad([row for row, _ in batch], device)
        places = torch.arange(ids.shape[1], device=device)
        begins = torch.tensor([[length] for _, length in batch], device=device)
        counted = (mask * (places >= begins))[:, 1:].bool()
        with torch.autocast(device, dtype=torch.bfloat16):
            states = writer.body(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
            scores = writer.get_next_scores(states[:, :-1][counted])
        step(writer, optimizer, F.cross_entropy(scores.float(), ids[:, 1:][counted]))
    return writer.eval()


def write_sentences(
    definitions: Sequence[Definition], count: int, start: Path, device: str
) -> list[Sentence]:
    """Return sentences that no author wrote but SmolLM2, for tools of all definitions. What they are, it says
    as a judge.
    """
    rng = random.Random(8)
    tokens = LargeTokens(start)
    known = [each for each in find_suspected(definitions) if each.label >= 0]
    rng.shuffle(known)
    writer = fit_writer(known, start, tokens, device)
    print(f"a writer, {time.monotonic() - STARTED:.0f} s", flush=True)
    groups = [[each for each in known if each.label == label] for label in (0, 1)]
    every = [each for one in definitions for each in one.sentences]
    asked: list[tuple[Sentence, str]] = []
    for number in range(count):
        one = rng.choice(groups[number % 2])
        around = one if rng.random() < 0.5 else rng.choice(every)
        opening = "".join(f" {word}" for word in one.prompt[0].split()[: rng.choice((0, 0, 1, 2, 3))])
        asked.append((around, write_start(around.prompt, steers=one.label == 1) + opening))
    rows = tokens.encode([text for _, text in asked])
    order = sorted(range(count), key=lambda number: len(rows[number]))
    (end,) = tokens.encode(["\n"])[0]
    texts: list[str] = []
    for at in range(0, count, WRITTEN_AT_ONCE):
        part = [rows[number] for number in order[at : at + WRITTEN_AT_ONCE]]
        with torch.autocast(device, dtype=torch.bfloat16):
            texts += tokens.decode(writer.continue_rows(part, end))
    written: list[tuple[str, Sentence]] = []
    for number, text in zip(order, texts, strict=True):
        around, asking = asked[number]
        if text:
            written.append(((asking + text).rpartition("\nSentence:")[2].strip(), around))
    ids = load_tokenizer(start).encode_batch([text for text, _ in written], add_special_tokens=False)
    print(f"{len(written)} sentences written, {time.monotonic() - STARTED:.0f} s", flush=True)
    return [
        Sentence([encoded.ids, *around.parts[1:]], [text, *around.prompt[1:]], -1, around.score)
        for encoded, (text, around) in zip(ids, written, strict=True)
    ]


def encode_for_large(sentences: Sequence[Sentence], tokens: LargeTokens) -> None:
    rows = tokens.encode([write_prompt(each.prompt) for each in sentences])
    for each, row in zip(sentences, rows, strict=True):
        each.large = row


def choose(
    likely: Any, definitions: Sequence[Definition], rng: random.Random
) -> list[tuple[Sentence, float, float]]:
    """Return sentences with label and weight for one pass. `likely` scores those of definitions in which it
    is not known which sentence steers the model: the highest counts.
    """
    chosen: list[tuple[Sentence, float, float]] = []
    unknown = [one for one in definitions if one.sentences and one.sentences[0].label == -1]
    scores = iter(likely([each for one in unknown for each in one.sentences]))
    for one in unknown:
        best = max(
            zip([float(next(scores)) for _ in one.sentences], one.sentences, strict=True), key=lambda x: x[0]
        )
        chosen.append((best[1], 1.0, 1.0))
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
    chosen += [(each, 0.0, 0.5) for each in rng.sample(rest, min(EASY, len(rest)))]
    rng.shuffle(chosen)
    return chosen


def compute_rate(share: float) -> float:
    """Return the share of the highest learning rate when this share of the fitting is done."""
    return min(1.0, share / 0.05 + 0.02) * max(0.01, 1 - share)


def score_sentences(judge: LargeJudge, device: str, sentences: Sequence[Sentence]) -> Array:
    return score_rows(judge, [each.large for each in sentences], device)


def fit_large(definitions: Sequence[Definition], start: Path, device: str) -> LargeJudge:
    torch.manual_seed(0)
    rng = random.Random(0)
    judge = LargeJudge(start).to(device)
    parts = list(judge.parameters())
    groups = [
        {"params": [part for part in parts if part.ndim > 1], "weight_decay": 0.05},
        {"params": [part for part in parts if part.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LARGE_RATE, betas=(0.9, 0.98), fused=device == "cuda")
    for epoch in range(LARGE_EPOCHS):

        def guess(sentences: Sequence[Sentence], *, first: bool = epoch == 0) -> Any:
            if first:
                return [each.score for each in sentences]
            return score_sentences(judge, device, sentences)

        chosen = choose(guess, definitions, rng)
        chosen.sort(key=lambda each: len(each[0].large) + 20 * rng.random())
        batches = [chosen[at : at + LARGE_BATCH] for at in range(0, len(chosen), LARGE_BATCH)]
        rng.shuffle(batches)
        judge.train()
        for number, batch in enumerate(batches):
            set_rate(optimizer, LARGE_RATE * compute_rate((epoch + number / len(batches)) / LARGE_EPOCHS))
            ids, mask = pad([one.large for one, _, _ in batch], device)
            labels = torch.tensor([label for _, label, _ in batch], device=device) * 0.94 + 0.03
            weights = torch.tensor([weight for _, _, weight in batch], device=device)
            with torch.autocast(device, dtype=torch.bfloat16):
                values = judge(ids, mask)
            losses = F.binary_cross_entropy_with_logits(values.float(), labels, reduction="none")
            step(judge, optimizer, (losses * weights).sum() / weights.sum())
        print(f"SmolLM2: pass {epoch + 1} of {LARGE_EPOCHS}, {time.monotonic() - STARTED:.0f} s", flush=True)
    return judge.eval()


def set_rate(optimizer: Any, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def step(judge: nn.Module, optimizer: Any, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(judge.parameters(), 1.0)
    optimizer.step()


def teach(definitions: Sequence[Definition], made: Sequence[Sentence], start: Path, device: str) -> Judge:
    """Fit the judge to what SmolLM2 says of the sentences, and to what is known of them."""
    torch.manual_seed(1)
    rng = random.Random(1)
    judge = load_start(start, KEPT_LAYERS).to(device)
    optimizer = torch.optim.AdamW(judge.parameters(), lr=RATE, weight_decay=0.01, fused=device == "cuda")
    average: list[Tensor] = []
    every = [each for one in definitions for each in one.sentences]
    taught = [each for each in every if each.taught is not None]
    easy = [each for each in every if each.taught is None and each.label == 0]
    for epoch in range(EPOCHS):
        chosen = [*taught, *rng.sample(easy, min(EASY, len(easy)))]
        chosen += rng.sample(list(made), min(MADE_AT_ONCE, len(made)))
        rng.shuffle(chosen)
        judge.train()
        for place in range(0, len(chosen), BATCH):
            share = (epoch + place / len(chosen)) / EPOCHS
            set_rate(optimizer, RATE * compute_rate(share))
            part = chosen[place : place + BATCH]
            ids, mask = pad([one.write(rng, 0.1, 0.12) for one in part], device)
            target = torch.tensor([-5.0 if one.taught is None else one.taught for one in part], device=device)
            known = torch.tensor([float(one.label) for one in part], device=device)
            likely = torch.sigmoid(target)
            likely = torch.where(known >= 0, 0.75 * likely + 0.25 * known, likely)
            with torch.autocast(device, dtype=torch.bfloat16):
                values = judge(ids, mask).float()
            loss = F.binary_cross_entropy_with_logits(values, likely)
            step(judge, optimizer, loss + 0.03 * F.smooth_l1_loss(values, target))
            if share >= 0.5:
                states = list(judge.state_dict().values())
                average = average or [tensor.clone() for tensor in states]
                torch._foreach_lerp_(average, states, 0.02)
    for tensor, mean in zip(judge.state_dict().values(), average, strict=True):
        tensor.copy_(mean)
    return judge.eval()


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
    parser.add_argument("--large", type=Path)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--examples", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--without", nargs="*", default=[])
    options = parser.parse_args()
    if options.command == "prepare":
        prepare(options.model, options.large, options.examples, options.out)
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    definitions = read_definitions(options.examples, options.start)
    left_out: list[Definition] = []
    learned: list[Definition] = []
    for one in definitions:
        unseen = one.author.startswith("real-") or one.author in (*HELD_OUT, *options.without)
        (left_out if unseen else learned).append(one)
    mixed = mix_sentences(learned, MIXED)
    made = (
        vary_sentences(learned, VARIED, options.start),
        write_sentences(learned, WRITTEN, options.start, device),
    )
    own = [each for one in learned for each in one.sentences]
    asked = [each for each in own if each.score > MIN_SCORE - 3 or each.label == 1]
    asked += [*mixed, *made[0], *made[1]]
    judged = [each for one in left_out for each in one.sentences]
    encode_for_large([*own, *judged, *mixed, *made[0], *made[1]], LargeTokens(options.start))
    large = fit_large(learned, options.start, device)
    print_figures("SmolLM2", lambda flat: score_sentences(large, device, flat), left_out)
    for each, value in zip(asked, score_sentences(large, device, asked), strict=True):
        each.taught = float(value)
    print(f"taught {len(asked)} sentences, {time.monotonic() - STARTED:.0f} s", flush=True)
    judge, other = (teach(learned, [*mixed, *part], options.start, device) for part in made)
    for tensor, second in zip(judge.state_dict().values(), other.state_dict().values(), strict=True):
        tensor.lerp_(second, 0.5)
    print_figures(
        "judge", lambda flat: score_rows(judge, [one.write(None, 0, 0) for one in flat], device), left_out
    )
    if options.out:
        export(judge, options.start, options.out)


if __name__ == "__main__":
    main()
