"""What a stranger can import, and what that costs."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from anyio import to_thread

import fingerpost
from fingerpost import Router
from tests.kit.routers import build_settings
from tests.kit.sleepy_server import SleepyServer
from tests.kit.tables import table
from tests.requirements import proves

HEAVY = {
    "aiohttp",
    "httpx2",
    "mcp",
    "mcp_types",
    "numpy",
    "onnxruntime",
    "pydantic",
    "re2",
    "rich",
    "sqlalchemy",
    "starlette",
    "uvicorn",
}


def list_loaded_packages(program: str) -> set[str]:
    """The top-level packages that running `program` loads, in a fresh interpreter."""
    report = "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    source = f"import json, sys\n{program}\n{report}"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.process
@proves("P9")
def test_importing_fingerpost_loads_nothing_heavy() -> None:
    assert list_loaded_packages("import fingerpost") & (HEAVY | {"click", "asyncio", "anyio"}) == set()


@pytest.mark.process
@proves("P9")
def test_help_and_version_load_click_and_nothing_heavy() -> None:
    commands = [["--help"], ["--version"], ["tools", "--help"], ["ask", "--help"], ["chat", "--help"]]
    loaded = list_loaded_packages(write_program(commands))
    assert "click" in loaded
    assert loaded & HEAVY == set()


def write_program(commands: list[list[str]], check: str = "pass") -> str:
    """A program that runs commands one after the other, and `check` after each."""
    return (
        "from fingerpost.surfaces.cli.main import main\n"
        f"for words in {commands!r}:\n"
        "    sys.argv = ['fingerpost', *words]\n"
        "    try:\n        main()\n"
        "    except SystemExit as leave:\n        assert not leave.code, leave.code\n"
        f"    {check}\n"
    )


CONNECTING = {"cryptography", "httpx2", "mcp", "mcp_types", "numpy", "starlette", "uvicorn"}


@pytest.mark.process
@proves("P9")
def test_a_router_with_a_model_that_connects_nothing_does_not_load_what_connections_need() -> None:
    program = (
        "from fingerpost import Policy, Router, Server\n"
        "from fingerpost.llm import OpenAIChat\n"
        "model = OpenAIChat('m', base_url='http://127.0.0.1:1/v1')\n"
        "Router([Server.stdio('a', ['b'])], model=model, policy=Policy(ask_for={'write'}))"
    )
    loaded = list_loaded_packages(program)
    assert loaded & (CONNECTING | {"jsonschema", "rich", "onnxruntime", "sqlalchemy"}) == set()


@pytest.mark.process
@proves("P9", "S1")
async def test_routers_and_commands_list_known_servers_without_loading_what_connections_need(
    tmp_path: Path,
) -> None:
    server = SleepyServer(tmp_path)
    settings = build_settings(tmp_path, flags={"scan_definitions": True})
    async with Router([server.spec], settings=settings) as router:
        await router.connect()
    command = [str(server.spec.command), *server.spec.args]
    program = (
        "import anyio\n"
        "from fingerpost import Router, Server, Settings\n"
        "async def list_tools():\n"
        f"    spec = Server.stdio('sleepy', {command!r}, era='2025-11-25')\n"
        f"    settings = Settings.model_validate({settings.model_dump(mode='json', exclude_unset=True)!r})\n"
        "    async with Router([spec], settings=settings) as router:\n"
        "        await router.connect()\n"
        "        assert [card.key for card in router.tools.cards] == ['sleepy/look']\n"
        "anyio.run(list_tools)\n"
    )
    entry = {"command": command[0], "args": command[1:], "era": "2025-11-25"}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"sleepy": entry}}), "utf-8")
    program += f"import os\nos.environ['FINGERPOST_STORE__URL'] = {settings.store.url!r}\n"
    program += write_program(
        [[*words, "--servers", str(file)] for words in (["ask", "hello"], ["tools"])],
        check="assert ('rich' in sys.modules) is (words[0] == 'tools')",
    )
    loaded = await to_thread.run_sync(list_loaded_packages, program)
    assert loaded & (CONNECTING | {"jsonschema", "onnxruntime"}) == set()
    assert server.starts == 1


def test_the_public_names_are_these_and_no_others() -> None:
    assert fingerpost.__all__ == [
        "Agent",
        "AnswerPiece",
        "Approval",
        "Call",
        "CallContext",
        "Catalog",
        "ConfigError",
        "Decision",
        "Effect",
        "Event",
        "EventSink",
        "FingerpostError",
        "Message",
        "Mode",
        "Narrowing",
        "Outcome",
        "Packet",
        "Pending",
        "Policy",
        "PolicyRule",
        "Question",
        "Route",
        "RouteOutcome",
        "Router",
        "Ruling",
        "Scorer",
        "ScorerRequest",
        "Selection",
        "Server",
        "ServerSpec",
        "Settings",
        "Snapshot",
        "Store",
        "ToolCard",
        "ToolScore",
        "Verdict",
        "load",
    ]
    assert dir(fingerpost) == sorted([*fingerpost.__all__, "__version__"])
    for name in fingerpost.__all__:
        assert getattr(fingerpost, name).__name__ == name


@pytest.mark.process
def test_the_names_of_packages_are_listed_before_they_are_loaded() -> None:
    program = (
        "from fingerpost import catalog, llm\n"
        "assert {*llm.__all__} <= {*dir(llm)} and 'Catalog' in dir(catalog)\n"
        "assert 'ChatModel' not in vars(llm) and hasattr(llm, 'ChatModel')\n"
        "from fingerpost.llm import *\n"
        "assert ModelPool is llm.ModelPool\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@table(
    ("package", "names"),
    [
        ("llm", {"ChatModel", "ModelPool", "ModelReply", "ModelRequest", "OnText", "OpenAIChat", "Role"}),
        ("embed", {"Embedded", "EmbeddedAgent"}),
        ("testing", {"HANG", "ScriptedModel", "calls", "playbook", "served", "tool_server"}),
        (
            "router",
            {
                "Agent",
                "AgentStats",
                "AgentStatus",
                "Policy",
                "Route",
                "RouteKeywords",
                "RouteOptions",
                "Router",
                "RuntimeSwitches",
            },
        ),
    ],
)
def test_the_packages_beside_it_offer_what_they_promise(package: str, names: set[str]) -> None:
    module = import_module(f"fingerpost.{package}")
    promised = set(module.__all__)
    assert names <= promised
    for name in promised:
        assert hasattr(module, name)


def test_a_name_that_does_not_exist_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Rooter'"):
        fingerpost.Rooter  # noqa: B018
