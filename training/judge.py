"""Honest figures: every family judged by a model that was trained without it.

    python -m training.judge --data FOLDER --base model.safetensors --tokenizer tokenizer.json --out DIR

Prints recall per set and the mean; with `--out` it also keeps the encoder of every family as
`<family>.safetensors`, for `training.export` and the benchmark's `--encoders`.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fingerpost.evals.metrics import compute_gains, compute_recall
from fingerpost.narrow.scorer import split_sentences
from training.encoder import Encoder, Words, encode, load, save
from training.examples import Material, prepare, trainable
from training.sets import FAMILIES, JUDGED, LICENSED, Request, RoutingSet, read_own, read_public
from training.train import Recipe, distil, fit

SAMPLE = 600
TOP = 20
SERVER_BONUS = 0.2
LEAKING = 0.85  # cosine from which a tool of our own counts as one of the judged catalog


def sampled(source: RoutingSet) -> RoutingSet:
    """At most `SAMPLE` requests that need a tool, always the same ones."""
    usable = [request for request in source.requests if trainable(request)]
    if len(usable) > SAMPLE:
        usable = random.Random(0).sample(usable, SAMPLE)
    return replace(source, requests=tuple(usable))


def without_leaks(materials: Sequence[Material], judged: Sequence[Material]) -> list[Material]:
    """Our own sets without the requests for tools that the judged catalogs also hold."""
    names = {tool.text.name for material in judged for tool in material.source.tools}
    vectors = torch.cat([material.vectors for material in judged])
    kept: list[Material] = []
    for material in materials:
        if material.source.family != "own":
            kept.append(material)
            continue
        close = (material.vectors @ vectors.T).amax(dim=1).cpu().numpy() > LEAKING
        leaking = {
            index
            for index, tool in enumerate(material.source.tools)
            if close[index] or tool.text.name in names
        }
        places = [
            place
            for place, request in enumerate(material.source.requests)
            if not leaking.intersection(tool for group in request.groups for tool in group)
        ]
        source = replace(material.source, requests=tuple(material.source.requests[p] for p in places))
        kept.append(
            replace(
                material,
                source=source,
                requests=[material.requests[p] for p in places],
                lexical=material.lexical[places],
                negatives=[material.negatives[p] for p in places],
            )
        )
    return kept


def recalls(source: RoutingSet, request: Request, ranking: Sequence[int]) -> list[float]:
    """The share of needs met within the first 1, 5 and 10 places."""
    groups = [frozenset(source.tools[tool].id for tool in group) for group in request.groups]
    gained = compute_gains([source.tools[tool].id for tool in ranking], groups)
    return [compute_recall(gained, len(groups), depth) for depth in (1, 5, 10)]


def scores(encoder: Encoder, material: Material, words: Words) -> tuple[np.ndarray, np.ndarray]:
    """(meaning, meaning with sentences), every request against every tool."""
    tools = encode(encoder, material.texts)
    whole = (encode(encoder, material.requests) @ tools.T).cpu().numpy()
    best = np.full_like(whole, -1.0)
    owners: list[int] = []
    texts: list[str] = []
    for place, request in enumerate(material.source.requests):
        for sentence in split_sentences(request.text):
            owners.append(place)
            texts.append(sentence)
    if texts:
        parts = (encode(encoder, [ids[:126] for ids in words.ids(texts)]) @ tools.T).cpu().numpy()
        for owner, row in zip(owners, parts, strict=True):
            best[owner] = np.maximum(best[owner], row)
    return whole, np.where(best[:, :1] > -1, 0.5 * whole + 0.5 * best, whole)


def server_means(material: Material, base: np.ndarray) -> np.ndarray:
    """For every tool the mean of its server's three best scores; nothing when there is one server."""
    servers = np.array([hash(tool.text.server) for tool in material.source.tools])
    known = np.unique(servers)
    bonus = np.zeros_like(base)
    for server in known if len(known) > 1 else ():
        columns = np.where(servers == server)[0]
        bonus[:, columns] = -np.sort(-base[:, columns], axis=1)[:, :3].mean(axis=1, keepdims=True)
    return bonus


def judge(encoder: Encoder, material: Material, words: Words) -> dict[str, list[float]]:
    """Recall at 1, 5 and 10 of meaning alone, of the hybrid, and of the hybrid with everything."""
    lexical = material.lexical
    whole, split = scores(encoder, material, words)
    full = 0.5 * split + 0.5 * lexical
    ways = {
        "meaning": whole,
        "hybrid": 0.5 * whole + 0.5 * lexical,
        "all": full + SERVER_BONUS * server_means(material, full),
    }
    found: dict[str, list[float]] = {}
    for way, matrix in ways.items():
        top = np.argsort(-matrix, axis=1, kind="stable")[:, :TOP]
        rows = [
            recalls(material.source, request, row)
            for request, row in zip(material.source.requests, top, strict=True)
        ]
        found[way] = [round(100 * float(value), 2) for value in np.mean(rows, axis=0)]
    return found


def main() -> None:
    reader = argparse.ArgumentParser(prog="python -m training.judge", description=__doc__)
    reader.add_argument("--data", type=Path, required=True, help="folder of public sets")
    reader.add_argument("--own", type=Path, default=Path(__file__).parent / "data")
    reader.add_argument("--base", type=Path, required=True)
    reader.add_argument("--tokenizer", type=Path, required=True)
    reader.add_argument("--out", type=Path)
    reader.add_argument("--seeds", type=int, default=3)
    reader.add_argument("--layers", type=int, nargs="*", default=(), help="layers that a student keeps")
    asked = reader.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    base, words = load(asked.base).to(device), Words(asked.tokenizer)
    trained = [
        prepare(one, base, words) for one in (*read_public(asked.data, LICENSED), *read_own(asked.own))
    ]
    judged = [prepare(sampled(one), base, words) for one in read_public(asked.data, JUDGED)]
    table: dict[str, dict[str, list[float]]] = {}
    for family in sorted({FAMILIES[material.source.name] for material in judged}):
        unseen = [material for material in judged if material.source.family == family]
        seen = without_leaks([m for m in trained if m.source.family != family], unseen)
        encoder = fit(base, seen, words, Recipe(seeds=tuple(range(asked.seeds))))
        if asked.layers:
            encoder = distil(encoder, asked.layers, seen, words)
        table.update({material.source.name: judge(encoder, material, words) for material in unseen})
        if asked.out:
            asked.out.mkdir(parents=True, exist_ok=True)
            save(encoder, asked.out / f"{family}.safetensors")
    for way in ("meaning", "hybrid", "all"):
        table.setdefault("mean", {})[way] = [
            round(float(np.mean([table[m.source.name][way][depth] for m in judged])), 2) for depth in range(3)
        ]
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
