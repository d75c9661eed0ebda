"""The knowledge server: a folder of notes, searchable by words and meaning."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.to_thread

from fingerpost.builtin.knowledge.base import KnowledgeBase
from fingerpost.builtin.knowledge.tools import DEFINITIONS, KnowledgeTools, build_knowledge_tools
from fingerpost.builtin.passages import get_vector_folder
from fingerpost.builtin.toolkit import BuiltinHost, BuiltinServer

__all__ = ["KnowledgeBase", "make"]

SERVER_NAME: Final = "knowledge"
DEFAULT_FOLDER: Final = "notes"


def make(host: BuiltinHost) -> BuiltinServer:
    """Create the server. Nothing is read before it is opened and used."""
    settings = host.settings
    chosen = settings.builtin.knowledge
    base = KnowledgeBase(
        host.resolve_path(chosen.folder, DEFAULT_FOLDER),
        file_bytes=chosen.file_bytes,
        by_meaning=settings.flags.dense_scores,
        vector_folder=get_vector_folder(settings),
    )

    @asynccontextmanager
    async def open_base() -> AsyncGenerator[None]:
        base.start_polling(chosen.watch_seconds)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(base.close)

    return BuiltinServer(
        SERVER_NAME,
        build_knowledge_tools(KnowledgeTools(host, base)),
        instructions=DEFINITIONS.instructions,
        open=open_base,
        get_context=host.get_context,
    )
