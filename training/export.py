"""Write an encoder as int8 ONNX, about 20 MB: what the package ships.

python -m training.export encoder.safetensors routing-encoder.onnx
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import torch

from training.encoder import load

OPSET = 17


def export(weights: Path, target: Path) -> None:
    """Per-channel dynamic int8, the embedding table included."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    encoder = load(weights).eval()
    ids = torch.ones(2, 16, dtype=torch.int64)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                encoder,
                (ids, torch.ones_like(ids)),
                str(plain),
                input_names=["input_ids", "attention_mask"],
                output_names=["vectors"],
                dynamic_axes={
                    "input_ids": {0: "texts", 1: "tokens"},
                    "attention_mask": {0: "texts", 1: "tokens"},
                    "vectors": {0: "texts"},
                },
                opset_version=OPSET,
                dynamo=False,
            )
        quantize_dynamic(str(plain), str(target), per_channel=True, weight_type=QuantType.QInt8)


if __name__ == "__main__":
    export(Path(sys.argv[1]), Path(sys.argv[2]))
