"""A tiny package with entry points, installed by hand: a module and its metadata in a folder on the path."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

HARBOUR = dedent(
    '''
    """A scorer, a rule and a server of a harbour."""

    from fingerpost import Ruling, ToolScore, Verdict
    from fingerpost.testing import tool_server


    class Tides:
        label = "tides"
        weight = 0.5

        def scores(self, request, cards):
            return {card.key: ToolScore(0.5, "the tide is high") for card in cards if "tide" in card.name}


    class Closed:
        label = "closed harbour"

        def judge(self, call, context):
            if "storm" in str(call.arguments):
                return Ruling(verdict=Verdict.DENY, reason="there is a storm", rule="")
            return None


    def serve():
        tools = [
            {
                "name": "tide_table",
                "description": "Show the tide table of a harbour.",
                "inputSchema": {"type": "object", "properties": {"day": {"type": "string"}}},
                "annotations": {"readOnlyHint": True},
            }
        ]
        return tool_server("harbour", tools).server


    def fail():
        raise RuntimeError("the tide tables are missing")
    '''
)
ENTRY_POINTS = dedent(
    """
    [fingerpost.scorers]
    tides = acme_harbour:Tides
    broken = acme_harbour:fail
    unused = acme_nowhere:Unused

    [fingerpost.rules]
    closed = acme_harbour:Closed
    broken = acme_harbour:fail

    [fingerpost.servers]
    harbour = acme_harbour:serve
    """
)


def install(
    folder: Path,
    *,
    name: str = "acme-harbour",
    version: str = "1.2",
    module: str = "acme_harbour",
    source: str = HARBOUR,
    entry_points: str = ENTRY_POINTS,
) -> Path:
    """Install a package of one module into `folder`, as an installer would; return the folder."""
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (folder / f"{module}.py").write_text(source, encoding="utf-8")
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(entry_points, encoding="utf-8")
    (metadata / "RECORD").write_text("", encoding="utf-8")
    return folder
