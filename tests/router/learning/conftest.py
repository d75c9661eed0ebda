"""Houses to be taught: a small one, and one with the tools of real packages."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors are made once for all tests of a worker."""
    return tmp_path_factory.mktemp("vectors")
