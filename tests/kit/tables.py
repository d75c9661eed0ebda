"""Table tests: one test for all rows of a table, with all failures reported together."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

TestFunction = Callable[..., Any]
NAMED_ROW = type(pytest.param())  # `pytest.param(…, id=…)`
RowId = Callable[[Any], object]


class TableFailure(AssertionError):
    """Rows of a table failed. The first one is the cause."""


def table(
    names: str | Sequence[str], rows: Iterable[Any], *, ids: RowId | Iterable[object] | None = None
) -> Callable[[TestFunction], TestFunction]:
    """Run the test for every row, like `pytest.mark.parametrize`, as one test without fixtures per row.

    A table costs one test instead of one per row, which is most of the time that short tests take.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    given = list(rows)
    values = [_read_row(row, columns) for row in given]
    labels = [
        str(row.id or label) if isinstance(row, NAMED_ROW) else str(label)
        for row, label in zip(given, _label_rows(values, ids), strict=True)
    ]
    cases = [(label, dict(zip(columns, row, strict=True))) for label, row in zip(labels, values, strict=True)]

    def decorate(test: TestFunction) -> TestFunction:
        if inspect.iscoroutinefunction(test):

            @wraps(test)
            async def run_async(**fixtures: Any) -> None:
                failures = _Failures(len(cases))
                for label, arguments in cases:
                    with failures.collect(label):
                        await test(**arguments, **fixtures)
                failures.check()

            return _hide_columns(run_async, test, columns)

        @wraps(test)
        def run(**fixtures: Any) -> None:
            failures = _Failures(len(cases))
            for label, arguments in cases:
                with failures.collect(label):
                    test(**arguments, **fixtures)
            failures.check()

        return _hide_columns(run, test, columns)

    return decorate


def _read_row(row: Any, columns: Sequence[str]) -> tuple[Any, ...]:
    if isinstance(row, NAMED_ROW):
        return tuple(row.values)
    return tuple(row) if len(columns) > 1 else (row,)


def _label_rows(values: Sequence[tuple[Any, ...]], ids: RowId | Iterable[object] | None) -> Iterable[object]:
    if ids is None:
        return [f"row {number}" for number in range(1, len(values) + 1)]
    if callable(ids):
        return ["-".join(str(ids(value)) for value in row) for row in values]
    return ids


def _hide_columns(run: TestFunction, test: TestFunction, columns: Sequence[str]) -> TestFunction:
    """Give the test a signature without the columns: pytest looks for a fixture of every other name."""
    signature = inspect.signature(test)
    missing = set(columns) - set(signature.parameters)
    assert not missing, f"{test.__name__} has no parameter {', '.join(sorted(missing))}"
    left = [parameter for name, parameter in signature.parameters.items() if name not in columns]
    run.__signature__ = signature.replace(parameters=left)
    return run


class _Failures:
    """The rows that failed so far."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._texts: list[str] = []
        self._first: Exception | None = None

    @contextmanager
    def collect(self, label: str) -> Generator[None]:
        try:
            yield
        except Exception as error:
            self._first = self._first or error
            self._texts.append(f"[{label}] {_locate(error)}{type(error).__name__}: {error}")

    def check(self) -> None:
        assert self._rows, "the table has no rows"
        if self._texts:
            text = "\n\n".join(self._texts)
            raise TableFailure(f"{len(self._texts)} of {self._rows} rows failed\n{text}") from self._first


def _locate(error: Exception) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tests/" in frame.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} " if frames else ""
