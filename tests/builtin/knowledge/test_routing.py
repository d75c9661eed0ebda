"""Requests about one's own notes find these tools among others; others do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost.builtin import open_router
from fingerpost.settings import Settings
from fingerpost.testing import tool_server
from tests.requirements import proves

OTHERS = {
    "weather": [
        ("forecast", "Get the weather forecast for a city"),
        ("alerts", "List severe weather alerts"),
    ],
    "mail": [("search_mail", "Search e-mail messages"), ("send_mail", "Send an e-mail to somebody")],
    "files": [
        ("read_file", "Read a file from the disk"),
        ("search_files", "Search files by name in a directory"),
        ("write_file", "Write text to a file"),
    ],
    "github": [("list_issues", "List the issues of a repository"), ("search_code", "Search code on GitHub")],
}
WANTED = {
    "what do my notes say about the boiler?": {"search_knowledge_base", "synthesize_kb_information"},
    "find my notes on API design": {"search_knowledge_base"},
    "search my knowledge base for insurance": {"search_knowledge_base"},
    "what does notes/garden.md say about watering?": {"read_kb_file"},
    "which notes do I have?": {"list_kb_directory", "search_knowledge_base"},
    "summarise what my notes say about the move, with sources": {"synthesize_kb_information"},
    "load my KOS context": {"load_kos_context"},
}


@pytest.mark.slow
@proves("B2")
async def test_requests_about_notes_find_the_knowledge_base_and_general_questions_do_not(
    settings: Settings, notes: Path, tmp_path: Path
):
    made = settings.model_copy(
        update={
            "builtin": settings.builtin.model_copy(update={"enabled": ("knowledge",)}),
            "narrow": settings.narrow.model_copy(update={"vectors": str(tmp_path / "vectors")}),
        }
    )
    others = [
        tool_server(name, [{"name": tool, "description": about} for tool, about in tools]).spec()
        for name, tools in OTHERS.items()
    ]
    async with open_router(others, settings=made, folder=notes.parent) as router:
        await router.connect()
        await router.settle(60)
        for request, wanted in WANTED.items():
            narrowing = await router.narrow(request)
            offered = [each.tool for each in narrowing.shortlist.candidates if each.offered]
            assert wanted <= {tool.partition("/")[2] for tool in offered}, (request, offered)
            assert offered[0].startswith("knowledge/"), (request, offered)
        keyless = await router.route("what does notes/garden/soil.md say about compost?")
        assert keyless.sources == ("knowledge/read_kb_file",)
        assert "Compost goes on the beds in April." in keyless.answer
        for request in ("what is the capital of France?", "what is 2 + 2?", "hello"):
            narrowing = await router.narrow(request)
            assert not [each for each in narrowing.shortlist.candidates if each.offered], request
