"""Proxies in front of gateways, with the configurations of `deploy/` and of the documentation."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from benchmarks.gateway.instances import HAPROXY, build_haproxy_configuration

from tests.kit.programs import ROOT

PATIENCE_S = 60.0
NGINX = shutil.which("nginx", path="/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
NGINX_MAIN = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    {server}
}}
"""


@asynccontextmanager
async def run_haproxy(folder: Path, port: int, instances: Sequence[int]) -> AsyncGenerator[str]:
    """The address of HAProxy in front of these instances."""
    assert HAPROXY is not None
    file = folder / "haproxy.cfg"
    async with _run(
        [HAPROXY, "-db", "-f", str(file)], file, build_haproxy_configuration(port, instances), port
    ) as address:
        yield address


@asynccontextmanager
async def run_nginx(folder: Path, port: int, gateway: int) -> AsyncGenerator[str]:
    """The address of nginx in front of a gateway, configured as the documentation says, without TLS."""
    assert NGINX is not None
    file = folder / "nginx.conf"
    written = NGINX_MAIN.format(folder=folder, server=build_nginx_server(port, gateway))
    async with _run([NGINX, "-p", str(folder), "-c", str(file)], file, written, port) as address:
        yield address


def build_nginx_server(port: int, gateway: int) -> str:
    """The `server` block of the documentation at other ports."""
    page = (ROOT / "docs" / "how-to" / "reverse-proxy.md").read_text("utf-8")
    found = re.search(r"```text\n(?P<server>    server \{.*?\n)    ```", page, re.DOTALL)
    assert found is not None
    server = re.sub(r" *ssl_certificate.*\n", "", found["server"])
    replaced = server.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};").replace(
        ":8642;", f":{gateway};"
    )
    assert str(port) in replaced and str(gateway) in replaced
    return replaced


@asynccontextmanager
async def _run(command: Sequence[str], file: Path, written: str, port: int) -> AsyncGenerator[str]:
    await anyio.Path(file).write_text(written, "utf-8")
    process = await anyio.open_process(command, stdout=subprocess.DEVNULL, stderr=None)
    try:
        with anyio.fail_after(PATIENCE_S):
            while True:
                try:
                    await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
                    break
                except OSError:
                    assert process.returncode is None, f"{command[0]} did not start"
                    await anyio.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        with anyio.CancelScope(shield=True):
            await process.wait()
