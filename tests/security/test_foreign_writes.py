"""What another server writes into the folder of the workspace counts as written there."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from fingerpost import Server
from fingerpost.records import ErrorKind
from fingerpost.testing import tool_server
from tests.builtin.conftest import settings
from tests.builtin.workspace.conftest import folder, open_workspace
from tests.kit.programs import program
from tests.kit.workspace import OpenWorkspace, WorkspaceCaller
from tests.requirements import proves

pytestmark = pytest.mark.process

__all__ = ["folder", "open_workspace", "settings"]

MAKEFILE: Final = "all:\n\ttouch owned\n"
ALLOWED: Final = {"verdict": "allow", "server": "other"}


async def is_asked(workspace: WorkspaceCaller) -> str:
    """The question about a command that runs what is in the folder and is allowed, empty if it runs."""
    said = await workspace.call("ai.execute", command="make")
    if said.error is ErrorKind.AUTHORIZATION_REQUIRED:
        return said.content
    assert said.success or "exited with status" in said.content, said.content
    return ""


@proves("X5")
async def test_a_command_asks_after_a_filesystem_server_wrote_into_the_folder(
    open_workspace: OpenWorkspace, folder: Path
):
    (folder / "Makefile").write_text("all:\n\ttouch ran\n")
    files = Server.stdio("other", [program("mcp-server-filesystem"), str(folder)])
    async with open_workspace(commands=("make",), policy=(ALLOWED,), servers=(files,)) as workspace:
        read = await workspace.router.call("other/read_text_file", {"path": str(folder / "Makefile")})
        assert read.success, read.content
        assert not await is_asked(workspace)
        written = await workspace.router.call(
            "other/write_file", {"path": str(folder / "GNUmakefile"), "content": MAKEFILE}
        )
        assert written.success, written.content
        question = await is_asked(workspace)
        assert "other/write_file" in question and "GNUmakefile" in question
    async with open_workspace(commands=("make",), policy=(ALLOWED,)) as workspace:  # a restart is no review
        assert "GNUmakefile" in await is_asked(workspace)
    assert not (folder / "owned").exists()


# Arguments of the call; of the server; whether the folder counts as written. `FOLDER` is the workspace, `UP`
# the folder that contains it, `BESIDE` another one.
CASES: Final[Mapping[str, tuple[dict[str, Any], dict[str, Any], bool]]] = {
    "inside": ({"path": "FOLDER/sub/conftest.py"}, {}, True),
    "one of several": ({"files": [{"path": "BESIDE/a"}, {"path": "FOLDER/a"}]}, {}, True),
    "the folder itself": ({"repo_path": "FOLDER"}, {}, True),
    "a folder around it": ({"directory": "UP"}, {}, True),
    "through ..": ({"path": "BESIDE/../ground/a"}, {}, True),
    "through a link": ({"path": "BESIDE/link/a"}, {}, True),
    "an address of a file": ({"uri": "file://FOLDER/a"}, {}, True),
    "a mapping from path to content": ({"files": {"FOLDER/a": "x"}}, {}, True),
    "in a command": ({"command": "cp x FOLDER/conftest.py"}, {}, True),
    "a command that names none": ({"command": "make install"}, {"cwd": "BESIDE"}, True),
    "relative to the server's folder": ({"path": "conftest.py"}, {"cwd": "FOLDER"}, True),
    "relative to a folder around it": ({"path": "ground/a"}, {"args": ("UP",)}, True),
    "relative to another folder": ({"path": "conftest.py"}, {"cwd": "BESIDE", "args": ("BESIDE",)}, False),
    "outside": ({"path": "BESIDE/a"}, {"args": ("UP",)}, False),
    "no path, and the server's argument is the folder": ({"message": "x"}, {"args": ("FOLDER",)}, True),
    "no path, and an option of it": ({"message": "x"}, {"args": ("--repository=FOLDER",)}, True),
    "no path, and a variable of it": ({"message": "x"}, {"env": {"REPOSITORY": "FOLDER"}}, True),
    "no path, and its program is there": ({"message": "x"}, {"args": ("FOLDER/server.py",)}, False),
    "no path, and another folder": ({"message": "x"}, {"args": ("BESIDE",), "cwd": "BESIDE"}, False),
    "no path": ({"message": "see FOLDER"}, {}, False),
    "relative, elsewhere": ({"path": "conftest.py"}, {"url": "https://api.example/mcp"}, False),
}


@proves("X5")
@pytest.mark.parametrize("case", CASES)
async def test_which_writes_of_other_servers_count(open_workspace: OpenWorkspace, folder: Path, case: str):
    beside = folder.parent / "beside"
    beside.mkdir()
    (beside / "link").symlink_to(folder)
    (folder / "server.py").touch()
    places = {"FOLDER": str(folder), "UP": str(folder.parent), "BESIDE": str(beside)}
    arguments, entry, counts = CASES[case]
    server = tool_server("other", [{"name": "write_note", "description": "Write a note."}])
    spec = replace(server.spec(), **put_places(entry, places))
    async with open_workspace(commands=("make",), policy=(ALLOWED,), servers=(spec,)) as workspace:
        assert (await workspace.router.call("other/write_note", put_places(arguments, places))).success
        assert bool(await is_asked(workspace)) is counts


def put_places(value: dict[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    text = repr(value)
    for name, place in places.items():
        text = text.replace(name, place)
    return ast.literal_eval(text)
