"""HAProxy in front of several gateways, with the configuration of `deploy/`."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from benchmarks.gateway.instances import HAPROXY, build_haproxy_configuration

PATIENCE_S = 60.0


@asynccontextmanager
async def run_haproxy(folder: Path, port: int, instances: Sequence[int]) -> AsyncGenerator[str]:
    """The address of HAProxy in front of these instances."""
    assert HAPROXY is not None
    file = anyio.Path(folder / "haproxy.cfg")
    await file.write_text(build_haproxy_configuration(port, instances), "utf-8")
    command = [HAPROXY, "-db", "-f", str(file)]
    process = await anyio.open_process(command, stdout=subprocess.DEVNULL, stderr=None)
    try:
        with anyio.fail_after(PATIENCE_S):
            while True:
                try:
                    await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
                    break
                except OSError:
                    assert process.returncode is None, "HAProxy did not start"
                    await anyio.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()
