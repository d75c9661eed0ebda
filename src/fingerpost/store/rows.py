"""Rows handed to the driver as they are, and short questions asked of it directly.

For the tables every call writes to. SQLAlchemy would look at every value of every
row again, which takes longer than writing them does. The price: what its column
types do (`Moment`, `ExactText`) is up to the caller. Errors are SQLAlchemy's all the same.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, cast

from sqlalchemy import Connection, Table
from sqlalchemy.exc import DBAPIError

RowValues = tuple[Any, ...]
_ROWS_PER_STATEMENT = 32  # rows in one statement


def execute_directly(
    connection: Connection, statement: str, values: RowValues = ()
) -> tuple[list[RowValues], int]:
    """What a statement of ours finds, and how many rows it changed. Marks are the driver's own."""
    if connection.dialect.name != "sqlite":
        result = connection.exec_driver_sql(statement, values)
        return [tuple(row) for row in result] if result.returns_rows else [], result.rowcount
    driver = cast("sqlite3.Connection", connection.connection.dbapi_connection)
    try:
        cursor = driver.execute(statement, values)
        return cursor.fetchall(), cursor.rowcount
    except sqlite3.Error as error:
        known = DBAPIError.instance(
            statement, None, error, sqlite3.Error, hide_parameters=True, dialect=connection.dialect
        )
        raise known from error


class RowInserter:
    """INSERT into some columns of one table; with `pass_over`, past rows that are there already."""

    def __init__(self, table: Table, *columns: str, skip_existing: bool = False) -> None:
        self._table = table.name
        self._columns = tuple(table.c[column].name for column in columns)  # a misspelt one fails here
        self._tail = " ON CONFLICT DO NOTHING" if skip_existing else ""

    def add(self, connection: Connection, rows: Sequence[RowValues]) -> int:
        """How many of the rows were added."""
        if connection.dialect.name != "sqlite":
            return connection.exec_driver_sql(self._build_statement("%s", 1), list(rows)).rowcount
        # Row by row SQLite would give up the interpreter's lock for each, and wait for it again.
        added = 0
        for begin in range(0, len(rows), _ROWS_PER_STATEMENT):
            some = rows[begin : begin + _ROWS_PER_STATEMENT]
            values = tuple(chain.from_iterable(some))
            added += execute_directly(connection, self._build_statement("?", len(some)), values)[1]
        return added

    @lru_cache(maxsize=2 * _ROWS_PER_STATEMENT)  # noqa: B019 - made once for each table, and as long-lived as the program
    def _build_statement(self, mark: str, rows: int) -> str:
        marks = ", ".join([f"({', '.join([mark] * len(self._columns))})"] * rows)
        return f"INSERT INTO {self._table} ({', '.join(self._columns)}) VALUES {marks}{self._tail}"  # noqa: S608 - names of our own
