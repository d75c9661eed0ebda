"""Fine-tune MiniLM so that a request lies near the text of the tool it needs.

    python -m training.train --data FOLDER --base model.safetensors --tokenizer tokenizer.json --out DIR

`--without A` leaves a family out, for honest figures on it (`training.judge`). `--layers 0 1 3 5` then
trains a student with these layers of the result: it learns the same task and the teacher's scores.
About half a minute on a GPU; minutes to hours on a CPU.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training.encoder import Encoder, Words, blend, keep_layers, load, padded, save
from training.examples import (
    LONGEST_TEXT,
    SAME_TOOL,
    Marks,
    Material,
    assemble,
    draw,
    prepare,
    synthetic_request,
)
from training.sets import LICENSED, read_own, read_public


@dataclass(frozen=True, slots=True)
class Recipe:
    """The figures of one training run."""

    draws: int = 30_000
    batch: int = 128
    hard: int = 4
    synthetic: float = 0.25
    rate: float = 5e-5
    decay: float = 0.01
    scale: float = 20.0
    own_share: float = 1.0  # weight of our own requests in the draw
    seeds: tuple[int, ...] = (0,)
    trained: float = 0.75  # share of the trained weights; the rest is the untrained model
    scores_share: float = 0.0  # of the loss: the teacher's distribution over the tools of a batch
    vectors_share: float = 0.0  # of the loss: the distance from the teacher's vectors


STUDENT = Recipe(
    draws=60_000, hard=6, synthetic=0.4, rate=2e-4, seeds=(0, 1), scores_share=1.0, vectors_share=5.0
)


@dataclass(slots=True)
class _Example:
    material: Material
    request: list[int]
    right: set[int]
    tools: list[int]  # the right one first
    texts: list[list[int]]


def train(
    base: Encoder,
    materials: Sequence[Material],
    words: Words,
    recipe: Recipe,
    seed: int,
    teacher: Encoder | None = None,
) -> Encoder:
    """One pass of contrastive training: in-batch and hard negatives, false ones masked."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    device = next(base.parameters()).device
    encoder = keep_layers(base, range(len(base.layers)))
    marks = Marks(words)
    examples = _examples(materials, words, recipe, rng)
    steps = len(examples) // recipe.batch
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    warm = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warm, max(0.0, (steps - step) / (steps - warm)))
    )
    encoder.train()
    started, running = time.time(), 0.0
    for step in range(steps):
        chosen = examples[step * recipe.batch : (step + 1) * recipe.batch]
        batch = [_example(material, which, marks, recipe, rng) for material, which in chosen]
        loss = _loss(encoder, batch, recipe, device, teacher)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        running += float(loss.detach())
        if (step + 1) % 50 == 0:
            print(
                f"step {step + 1}/{steps}, loss {running / 50:.3f}, {time.time() - started:.0f} s", flush=True
            )
            running = 0.0
    return encoder.eval()


@dataclass(slots=True)
class _Made:
    """A request made of a description, for a tool that no request names."""

    tool: int
    request: list[int]


_Drawn = tuple[Material, int | _Made]


def _examples(
    materials: Sequence[Material], words: Words, recipe: Recipe, rng: random.Random
) -> list[_Drawn]:
    """Drawn requests, and synthetic ones."""
    drawn: list[_Drawn] = list(draw(materials, recipe.draws, rng, {"own": recipe.own_share}))
    pool = [(material, tool) for material in materials for tool in range(len(material.source.tools))]
    made: list[tuple[Material, int, str]] = []
    while len(made) < int(len(drawn) * recipe.synthetic):
        material, tool = rng.choice(pool)
        if (text := synthetic_request(material.source.tools[tool], rng)) is not None:
            made.append((material, tool, text))
    ids = words.ids([text for _, _, text in made])
    for (material, tool, _), row in zip(made, ids, strict=True):
        drawn.append((material, _Made(tool, row[:LONGEST_TEXT])))
    rng.shuffle(drawn)
    return drawn


def _example(
    material: Material, which: int | _Made, marks: Marks, recipe: Recipe, rng: random.Random
) -> _Example:
    if isinstance(which, _Made):
        parts = material.fields[which.tool]
        bare = replace(parts, server=parts.server if rng.random() < 0.6 else [], description=[])
        others = rng.sample(range(len(material.fields)), min(recipe.hard, len(material.fields)))
        tool, right, request = which.tool, {which.tool}, which.request
        first = assemble(bare, marks)
    else:
        asked = material.source.requests[which]
        tool = rng.choice(rng.choice(asked.groups))
        wrong = material.negatives[which]
        others = rng.sample(wrong, min(recipe.hard, len(wrong)))
        right = {needed for group in asked.groups for needed in group}
        request = material.requests[which]
        first = assemble(material.fields[tool], marks, rng)
    texts = [first, *(assemble(material.fields[other], marks, rng) for other in others)]
    return _Example(material, request, right, [tool, *others], texts)


def _loss(
    encoder: Encoder,
    batch: Sequence[_Example],
    recipe: Recipe,
    device: torch.device,
    teacher: Encoder | None,
) -> Tensor:
    starts = np.cumsum([0, *(len(example.tools) for example in batch[:-1])])
    right = torch.from_numpy(starts).to(device)
    asked = padded([example.request for example in batch], device)
    offered = padded([text for example in batch for text in example.texts], device)
    requests, tools = _encode_both(encoder, asked, offered)
    scores = requests @ tools.T
    masked = scores.masked_fill(torch.from_numpy(_also_right(batch, starts)).to(device), -1e4)
    loss = F.cross_entropy(masked * recipe.scale, right)
    if teacher is None:
        return loss
    with torch.no_grad():
        goal_requests, goal_tools = _encode_both(teacher, asked, offered)
    goal = F.softmax(goal_requests @ goal_tools.T * recipe.scale, dim=-1)
    divergence = F.kl_div(F.log_softmax(scores * recipe.scale, dim=-1), goal, reduction="batchmean")
    distance = sum(
        (1 - (own * wanted).sum(-1)).mean()
        for own, wanted in ((requests, goal_requests), (tools, goal_tools))
    )
    return loss + recipe.scores_share * divergence + recipe.vectors_share * distance


def _encode_both(
    encoder: Encoder, requests: tuple[Tensor, Tensor], tools: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    kind = requests[0].device.type
    with torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda"):
        return encoder(*requests).float(), encoder(*tools).float()


def _also_right(batch: Sequence[_Example], starts: np.ndarray) -> np.ndarray:
    """For every request and tool of the batch: is it as good as the right one, and so no wrong one?"""
    untrained = np.concatenate([example.material.untrained[example.tools] for example in batch])
    found = untrained[starts] @ untrained.T > SAME_TOOL
    places: dict[str, list[tuple[int, int]]] = {}
    for example, start in zip(batch, starts, strict=True):
        members = places.setdefault(example.material.source.name, [])
        members.extend((int(start) + offset, tool) for offset, tool in enumerate(example.tools))
    for row, example in enumerate(batch):
        for column, tool in places[example.material.source.name]:
            if tool in example.right:
                found[row, column] = True
        found[row, starts[row]] = False
    return found


def fit(base: Encoder, materials: Sequence[Material], words: Words, recipe: Recipe) -> Encoder:
    """Train once per seed and blend the results with the untrained model."""
    states = [train(base, materials, words, recipe, seed).state_dict() for seed in recipe.seeds]
    share = recipe.trained / len(states)
    blended = keep_layers(base, range(len(base.layers)))
    blended.load_state_dict(
        blend([*states, base.state_dict()], [*([share] * len(states)), 1 - recipe.trained])
    )
    return blended.eval()


def distil(
    teacher: Encoder,
    kept: Sequence[int],
    materials: Sequence[Material],
    words: Words,
    recipe: Recipe = STUDENT,
) -> Encoder:
    """Train a student that begins as some layers of its teacher, once per seed; the mean of the results."""
    student = keep_layers(teacher, kept)
    states = [train(student, materials, words, recipe, seed, teacher).state_dict() for seed in recipe.seeds]
    student.load_state_dict(blend(states, [1 / len(states)] * len(states)))
    return student.eval()


def main() -> None:
    reader = argparse.ArgumentParser(prog="python -m training.train", description=__doc__)
    reader.add_argument("--data", type=Path, help="folder of public sets; only licensed ones are used")
    reader.add_argument("--own", type=Path, default=Path(__file__).parent / "data", help="our own sets")
    reader.add_argument("--base", type=Path, required=True, help="model.safetensors of all-MiniLM-L6-v2")
    reader.add_argument("--tokenizer", type=Path, required=True, help="its tokenizer.json")
    reader.add_argument("--out", type=Path, required=True, help="where encoder.safetensors goes")
    reader.add_argument("--without", help="leave this family out")
    reader.add_argument("--seeds", type=int, default=3, help="how many runs are blended")
    reader.add_argument("--layers", type=int, nargs="*", default=(), help="layers that a student keeps")
    asked = reader.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    base, words = load(asked.base).to(device), Words(asked.tokenizer)
    sets = [*(read_public(asked.data, LICENSED) if asked.data else ()), *read_own(asked.own)]
    materials = [prepare(one, base, words) for one in sets if one.family != asked.without]
    asked.out.mkdir(parents=True, exist_ok=True)
    recipe = Recipe(seeds=tuple(range(asked.seeds)))
    encoder = fit(base, materials, words, recipe)
    if asked.layers:
        encoder = distil(encoder, asked.layers, materials, words)
    save(encoder, asked.out / "encoder.safetensors")


if __name__ == "__main__":
    main()
