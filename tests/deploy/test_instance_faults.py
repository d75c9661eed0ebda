"""The short version of `make bench-scale`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from benchmarks.gateway.instances import CLOSED, HAPROXY, InstanceBench

from tests.kit import warm
from tests.requirements import proves

SECONDS = 4.0
AT_ONCE = 4


@pytest.mark.process
@pytest.mark.skipif(HAPROXY is None, reason="HAProxy is not installed")
@pytest.mark.timeout(300)
@proves("M41")
async def test_nothing_is_lost_or_repeated_when_an_instance_and_the_database_fail() -> None:
    with TemporaryDirectory(prefix="fp-", ignore_cleanup_errors=True) as folder:
        bench = InstanceBench(
            Path(folder), instances=2, workers=1, sessions=8, at_once=AT_ONCE, python=warm.python()
        )
        found = await bench.run(seconds=SECONDS, cut_s=3.0)
    assert found.lost == []
    assert found.repeated == []
    assert found.spent_twice == []
    assert found.healed
    assert found.acknowledged
    assert found.spent
    assert found.errors.pop(CLOSED, 0) <= 2 * AT_ONCE  # when the instance was killed
    assert not [kind for kind in found.errors if not kind.startswith(("error ", "failed result"))]
