"""INSERT for a row that may be there already, which SQLAlchemy spells per database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Table
from sqlalchemy.dialects import sqlite

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

# From the new values of a row, by column name, to the columns to set.
ColumnChange = Callable[[Mapping[str, ColumnElement[Any]]], Mapping[str, ColumnElement[Any]]]


def insert_ignoring(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """INSERT that passes over rows already there."""
    return _build_insert(connection.dialect.name, table).on_conflict_do_nothing()


def upsert(
    connection: Connection, table: Table, change: ColumnChange | None = None
) -> sqlite.Insert | postgresql.Insert:
    """INSERT that changes the row when there is one: to the new values, or as `change` says."""
    return build_upsert(connection.dialect.name, table, change)


def build_upsert(
    dialect: str, table: Table, change: ColumnChange | None = None
) -> sqlite.Insert | postgresql.Insert:
    """The same for a database known by its name, for whoever makes the statement once."""
    statement = _build_insert(dialect, table)
    keys = table.primary_key.columns.keys()
    new = {column.name: column for column in statement.excluded}
    changed = (
        {name: column for name, column in new.items() if name not in keys} if change is None else change(new)
    )
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


def _build_insert(dialect: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    if dialect == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # only where there is one

    return postgresql.insert(table)
