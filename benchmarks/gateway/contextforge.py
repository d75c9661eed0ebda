"""ContextForge (`mcp-contextforge-gateway`) in front of given servers, on SQLite, its limits lifted."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread

from benchmarks.gateway.fronts import NotReady
from benchmarks.gateway.programs import RunningProgram, free_port

COMMAND = Path(__file__).parents[2] / ".venv-peers" / "bin" / "mcpgateway"
PATIENCE_S = 90.0
_SECRET = "of-this-measurement-alone-0123456789-0123456789"
_WORD = "Of-this-measurement-1!"


def is_installed() -> bool:
    return COMMAND.exists()


async def start(folder: Path, urls: Sequence[str]) -> tuple[RunningProgram, str, dict[str, str]]:
    """The program, its MCP address and the headers a client needs. Its servers are registered by REST."""
    port = free_port()
    home = folder / f"contextforge-{port}"
    home.mkdir()
    environment = _environment(home)
    command = [str(COMMAND), "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    program = RunningProgram(
        command, folder / f"contextforge-{port}.log", environment=environment, folder=home
    )
    base = f"http://127.0.0.1:{port}"
    try:
        headers = await anyio.to_thread.run_sync(_register, base, urls, environment, home)
    except (OSError, subprocess.CalledProcessError) as error:
        last_output = program.last_words()
        program.stop()
        raise NotReady(f"ContextForge could not be set up: {error!r}; it said: {last_output}") from error
    return program, f"{base}/mcp", headers


def _environment(home: Path) -> dict[str, str]:
    return {
        "DATABASE_URL": f"sqlite:///{home}/gateway.db",
        "CACHE_TYPE": "memory",
        "ENVIRONMENT": "development",
        "LOG_LEVEL": "ERROR",
        "JWT_SECRET_KEY": _SECRET,
        "AUTH_ENCRYPTION_SECRET": _SECRET,
        "BASIC_AUTH_PASSWORD": _WORD,
        "DEFAULT_USER_PASSWORD": _WORD,
        "PLATFORM_ADMIN_EMAIL": "admin@example.com",
        "PLATFORM_ADMIN_PASSWORD": _WORD,
        "MCPGATEWAY_UI_ENABLED": "false",
        "MCPGATEWAY_ADMIN_API_ENABLED": "true",
        "OBSERVABILITY_ENABLED": "false",
        "PLUGINS_ENABLED": "false",
        "RATE_LIMITING_ENABLED": "false",
        "TOOL_RATE_LIMIT": "1000000",
        "SSRF_ALLOW_LOCALHOST": "true",
        "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
    }


def _register(base: str, urls: Sequence[str], environment: dict[str, str], home: Path) -> dict[str, str]:
    _wait_for(f"{base}/health")
    command = [str(COMMAND.with_name("python")), "-m", "mcpgateway.utils.create_jwt_token"]
    command += ["--username", "admin@example.com", "--admin", "--exp", "60", "--secret", _SECRET]
    made = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=home, env={**os.environ, **environment}
    )
    headers = {"Authorization": f"Bearer {made.stdout.strip().splitlines()[-1]}"}
    for number, url in enumerate(urls):
        entry = {"name": f"s{number}", "url": url, "transport": "STREAMABLEHTTP", "visibility": "public"}
        _ask(f"{base}/gateways", entry, headers)
    return headers


def _wait_for(url: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            _ask(url, None, {})
        except OSError:
            time.sleep(0.2)
        else:
            return
    message = f"nothing answers at {url}"
    raise TimeoutError(message)


def _ask(url: str, body: dict[str, Any] | None, headers: dict[str, str]) -> None:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        answer.read()
