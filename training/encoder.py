"""MiniLM as a PyTorch module: BERT layers (six, fewer in a student), mean pooling, unit vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

HIDDEN, INNER, HEADS, LAYERS, VOCABULARY, POSITIONS = 384, 1536, 12, 6, 30522, 512
LONGEST = 128  # tokens of a text, [CLS] and [SEP] included
CLS, SEP = 101, 102

# Our names to those of the published weights.
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
_EMBEDDING_NAMES = {
    "words.weight": "embeddings.word_embeddings.weight",
    "positions.weight": "embeddings.position_embeddings.weight",
    "segments.weight": "embeddings.token_type_embeddings.weight",
    "norm.weight": "embeddings.LayerNorm.weight",
    "norm.bias": "embeddings.LayerNorm.bias",
}


class Layer(nn.Module):
    """One transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.attended = nn.Linear(HIDDEN, HIDDEN)
        self.attended_norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.inner, self.outer = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.outer_norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape

        def heads(t: Tensor) -> Tensor:
            return t.view(batch, length, HEADS, HIDDEN // HEADS).transpose(1, 2)

        q, k, v = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        if self.training:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype))
        else:  # written out, so that it exports to plain ONNX operators
            mixed = torch.softmax(q @ k.transpose(-1, -2) / (HIDDEN // HEADS) ** 0.5 + mask, dim=-1) @ v
        mixed = mixed.transpose(1, 2).reshape(batch, length, HIDDEN)
        x = self.attended_norm(x + self.dropout(self.attended(mixed)))
        return self.outer_norm(x + self.dropout(self.outer(F.gelu(self.inner(x)))))


class Encoder(nn.Module):
    """Token ids in, unit vectors out."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Embedding(POSITIONS, HIDDEN)
        self.segments = nn.Embedding(2, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.words(ids) + self.positions.weight[: ids.shape[1]] + self.segments.weight[0]
        x = self.dropout(self.norm(x))
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, hidden)
        kept = mask[:, :, None].to(torch.float32)
        pooled = (x.float() * kept).sum(1) / kept.sum(1).clamp(min=1e-9)
        return pooled / pooled.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def load(path: Path) -> Encoder:
    """From a file with the published names (the base weights, or what `save` wrote)."""
    published = load_file(str(path))
    layers = len({name.split(".")[2] for name in published if name.startswith("encoder.layer.")})
    own = {ours: published[theirs] for ours, theirs in _names(layers).items()}
    encoder = Encoder(layers)
    encoder.load_state_dict({name: tensor.float() for name, tensor in own.items()})
    return encoder


def keep_layers(encoder: Encoder, kept: Sequence[int]) -> Encoder:
    """A copy with some of the layers, by their places."""
    copied = Encoder(len(encoder.layers)).to(next(encoder.parameters()).device)
    copied.load_state_dict(encoder.state_dict())
    copied.layers = nn.ModuleList(copied.layers[place] for place in kept)
    return copied


def save(encoder: Encoder, path: Path) -> None:
    """With the published names, in half precision."""
    state = encoder.state_dict()
    names = _names(len(encoder.layers))
    tensors = {theirs: state[ours].half().cpu().contiguous() for ours, theirs in names.items()}
    save_file(tensors, str(path))


def blend(states: Sequence[dict[str, Tensor]], shares: Sequence[float]) -> dict[str, Tensor]:
    """The weighted mean of several weights: steadier than any one of them."""
    return {
        name: sum(share * state[name].float() for state, share in zip(states, shares, strict=True))  # type: ignore[misc]
        for name in states[0]
    }


def _names(layers: int) -> dict[str, str]:
    names = dict(_EMBEDDING_NAMES)
    for number in range(layers):
        for ours, theirs in _LAYER_NAMES.items():
            for kind in ("weight", "bias"):
                names[f"layers.{number}.{ours}.{kind}"] = f"encoder.layer.{number}.{theirs}.{kind}"
    return names


class Words:
    """Texts to token ids, without the special ones."""

    def __init__(self, path: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self._tokenizer.encode_batch([text or " " for text in texts], add_special_tokens=False)
        return [entry.ids for entry in encoded]


def padded(texts: Sequence[Sequence[int]], device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Token ids and mask of one batch, with the special tokens."""
    rows = [[CLS, *text[: LONGEST - 2], SEP] for text in texts]
    width = max(map(len, rows))
    ids = np.zeros((len(rows), width), np.int64)
    mask = np.zeros((len(rows), width), np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


@torch.no_grad()
def encode(encoder: Encoder, texts: Sequence[Sequence[int]], batch: int = 512) -> Tensor:
    """The vectors of many texts, sorted by length inside so that little is padded."""
    encoder.eval()
    device = next(encoder.parameters()).device
    vectors = torch.zeros(len(texts), HIDDEN, device=device)
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            vectors[torch.tensor(part, device=device)] = encoder(*padded([texts[i] for i in part], device))
    return vectors
