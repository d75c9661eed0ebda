"""Many rows at once, handed to the driver as they are.

For the tables every call writes to. SQLAlchemy would look at every value of every
row again, which takes longer than writing them does. The price: what its column
types do (`Moment`, `ExactText`) is up to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table

Row = tuple[Any, ...]


class Rows:
    """INSERT into some columns of one table; with `pass_over`, past rows that are there already."""

    def __init__(self, table: Table, *columns: str, pass_over: bool = False) -> None:
        self._table = table.name
        self._columns = tuple(table.c[column].name for column in columns)  # a misspelt one fails here
        self._tail = " ON CONFLICT DO NOTHING" if pass_over else ""

    def add(self, connection: Connection, rows: Sequence[Row]) -> int:
        """How many of the rows were added."""
        return connection.exec_driver_sql(self._statement(connection.dialect.paramstyle), list(rows)).rowcount

    @cache  # noqa: B019 - made once for each table, and as long-lived as the program
    def _statement(self, paramstyle: str) -> str:
        mark = "?" if paramstyle == "qmark" else "%s"
        marks = ", ".join([mark] * len(self._columns))
        return f"INSERT INTO {self._table} ({', '.join(self._columns)}) VALUES ({marks}){self._tail}"  # noqa: S608 - names of our own
