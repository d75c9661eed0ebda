"""Sign-in tokens of servers, as opaque bytes. The file they rest in is readable by its owner only."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, select

from fingerpost.records import utc_now
from fingerpost.store.database import Database
from fingerpost.store.schema import tokens
from fingerpost.store.statements import insert_ignoring, upsert
from fingerpost.store.writer import StoreWriter


class TokenStore:
    """One value per server."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def get(self, server: str) -> bytes | None:
        query = select(tokens.c.data).where(tokens.c.server == server)
        return await self._database.read(lambda connection: connection.execute(query).scalar())

    async def put(self, server: str, data: bytes) -> None:
        """Keep the token, in place of an older one."""
        await self._writer.write(_put_tokens, (server, data))

    async def put_if_absent(self, name: str, data: bytes) -> bytes:
        """Keep `data` unless there is a value already; the one that stands, whoever was first."""
        return await self._writer.write(_put_tokens_if_absent, (name, data))

    async def remove(self, server: str) -> bool:
        """Forget the token. False when there was none."""
        return await self._writer.write(_remove_tokens, server)


def _put_tokens(connection: Connection, items: Sequence[tuple[str, bytes]]) -> list[None]:
    for server, data in items:
        row = {"server": server, "data": data, "saved": utc_now()}
        connection.execute(upsert(connection, tokens), row)
    return [None] * len(items)


def _put_tokens_if_absent(connection: Connection, items: Sequence[tuple[str, bytes]]) -> list[bytes]:
    standing: list[bytes] = []
    for name, data in items:
        row = {"server": name, "data": data, "saved": utc_now()}
        connection.execute(insert_ignoring(connection, tokens), row)
        standing.append(connection.execute(select(tokens.c.data).where(tokens.c.server == name)).scalar_one())
    return standing


def _remove_tokens(connection: Connection, servers: Sequence[str]) -> list[bool]:
    return [
        connection.execute(delete(tokens).where(tokens.c.server == name)).rowcount > 0 for name in servers
    ]
