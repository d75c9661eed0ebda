"""SmolLM2-135M as a judge of sentences, which teaches the judge that is shipped (`training/fit_judge.py`),
and as a writer of sentences to learn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn

LAYERS, SIZE, INNER, HEADS, GROUPS, ROTATION = 30, 576, 1536, 9, 3, 100_000.0
LONGEST: Final = 200  # tokens
MAX_AROUND, MAX_SENTENCE = 160, 600  # characters
MAX_WRITTEN, CANDIDATES = 56, 50  # tokens; the likeliest tokens, of which one is drawn
_MATRICES: Final = {
    "attn_q": ("self_attn.q_proj", SIZE, SIZE),
    "attn_k": ("self_attn.k_proj", SIZE // HEADS * GROUPS, SIZE),
    "attn_v": ("self_attn.v_proj", SIZE // HEADS * GROUPS, SIZE),
    "attn_output": ("self_attn.o_proj", SIZE, SIZE),
    "ffn_gate": ("mlp.gate_proj", INNER, SIZE),
    "ffn_up": ("mlp.up_proj", INNER, SIZE),
    "ffn_down": ("mlp.down_proj", SIZE, INNER),
}
_NORMS: Final = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def write_prompt(parts: Sequence[str]) -> str:
    """Return what SmolLM2 reads: the surroundings first, the sentence last."""
    text, where, about, before, after = (*parts, "", "", "", "")[:5]
    return (
        f"Tool: {about[:MAX_AROUND]}\nPlace: {where}\nBefore: {before[-MAX_AROUND:]}\n"
        f"After: {after[:MAX_AROUND]}\nSentence: {text[:MAX_SENTENCE]}\nAnswer:"
    )


def prepare_large(weights: Path, prompts: Sequence[str], out: Path) -> None:
    """Write tokenizer and weights, as they are compressed in the `.gguf` file, of the tokens that occur."""
    from gguf import GGUFReader

    reader = GGUFReader(str(weights))
    tokens: list[str] = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(pair.split(" ")) for pair in reader.fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.save(str(out / "large-tokenizer.json"))
    used = np.unique(np.concatenate([each.ids for each in tokenizer.encode_batch(prompts)]))
    blocks = {tensor.name: np.asarray(tensor.data) for tensor in reader.tensors}
    blocks["token_embd.weight"] = blocks["token_embd.weight"].reshape(len(tokens), -1)[used]
    np.savez(out / "large.npz", used=used, **blocks)


class LargeTokens:
    """Tokens of SmolLM2 that occur in the examples, numbered from 0; others are left out."""

    def __init__(self, start: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(start / "large-tokenizer.json"))
        self._tokenizer.decoder = decoders.ByteLevel()
        with np.load(start / "large.npz") as stored:
            self._used = [int(token) for token in stored["used"]]
        self._known = {token: number for number, token in enumerate(self._used)}

    def encode(self, prompts: Sequence[str]) -> list[list[int]]:
        return [
            [self._known[token] for token in each.ids if token in self._known][-LONGEST:]
            for each in self._tokenizer.encode_batch(list(prompts))
        ]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return self._tokenizer.decode_batch([[self._used[number] for number in row] for row in rows])


def _read_blocks(raw: Any, rows: int, columns: int) -> Tensor:
    """Return a matrix whose values are compressed 32 by 32: 4 bits (Q4_1) or 8 (Q8_0)."""
    if raw.size == rows * columns // 32 * 20:
        blocks = np.ascontiguousarray(raw).reshape(-1, 20)
        scale, least = (blocks[:, at : at + 2].copy().view(np.float16).astype(np.float32) for at in (0, 2))
        values = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1) * scale + least
    else:
        blocks = np.ascontiguousarray(raw).reshape(-1, 34)
        values = blocks[:, 2:].copy().view(np.int8) * blocks[:, :2].copy().view(np.float16).astype(np.float32)
    return torch.tensor(values.reshape(rows, columns))


def _order_rotated(matrix: Tensor, heads: int) -> Tensor:
    """Undo the order of rows of `.gguf` files, where the two halves of a rotation stand side by side."""
    rows, columns = matrix.shape
    return matrix.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


class LargeJudge(nn.Module):
    """Token ids in; one value for each text, read from its last token."""

    def __init__(self, start: Path) -> None:
        from transformers import LlamaConfig, LlamaModel

        super().__init__()
        stored = dict(np.load(start / "large.npz"))
        words = len(stored["used"])
        config = LlamaConfig(
            vocab_size=words,
            hidden_size=SIZE,
            intermediate_size=INNER,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=GROUPS,
            rms_norm_eps=1e-5,
            pad_token_id=0,
            rope_parameters={"rope_type": "default", "rope_theta": ROTATION},
        )
        self.body = LlamaModel(config)
        state = {
            "embed_tokens.weight": _read_blocks(stored["token_embd.weight"], words, SIZE),
            "norm.weight": torch.tensor(stored["output_norm.weight"]),
        }
        for layer in range(LAYERS):
            for name, (ours, rows, columns) in _MATRICES.items():
                matrix = _read_blocks(stored[f"blk.{layer}.{name}.weight"], rows, columns)
                if name in ("attn_q", "attn_k"):
                    matrix = _order_rotated(matrix, HEADS if name == "attn_q" else GROUPS)
                state[f"layers.{layer}.{ours}.weight"] = matrix
            for name, ours in _NORMS.items():
                state[f"layers.{layer}.{ours}.weight"] = torch.tensor(stored[f"blk.{layer}.{name}.weight"])
        self.body.load_state_dict(state)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(SIZE, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = self.body(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        last = states[torch.arange(len(states), device=states.device), mask.sum(1) - 1]
        return self.head(self.dropout(last.float())).squeeze(1)

    def get_next_scores(self, states: Tensor) -> Tensor:
        """Return the score of each token as the next one: the table of words is the last layer, too."""
        return states @ self.body.embed_tokens.weight.to(states.dtype).T

    @torch.no_grad()
    def continue_rows(self, rows: Sequence[Sequence[int]], end: int) -> list[list[int]]:
        """Return for each row tokens drawn one by one, until the token `end`; none if it does not come."""
        device = self.head.weight.device
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows], device=device)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        mask = (torch.arange(width, device=device) >= width - lengths[:, None]).to(torch.int64)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        cache = None
        written: list[Tensor] = []
        for _ in range(MAX_WRITTEN):
            found = self.body(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )
            cache = found.past_key_values
            scores, likely = self.get_next_scores(found.last_hidden_state[:, -1]).float().topk(CANDIDATES)
            ids = likely.gather(1, torch.multinomial(scores.softmax(1), 1))
            written.append(ids)
            mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
            positions = positions[:, -1:] + 1
        drawn = torch.cat(written, dim=1).tolist()
        return [row[: row.index(end)] if end in row else [] for row in drawn]


def pad(rows: Sequence[Sequence[int]], device: str) -> tuple[Tensor, Tensor]:
    """Return token ids of one length, and 1 where they are not padding."""
    width = max(1, *map(len, rows))
    ids, mask = (np.zeros((len(rows), width), np.int64) for _ in range(2))
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


@torch.no_grad()
def score_rows(judge: nn.Module, rows: Sequence[Sequence[int]], device: str) -> Any:
    """Return the judge's value for each row of token ids."""
    judge.eval()
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    values = np.zeros(len(rows), np.float32)
    for place in range(0, len(order), 256):
        part = order[place : place + 256]
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            values[part] = judge(*pad([rows[index] for index in part], device)).float().cpu().numpy()
    return values
