"""What serving changes about the interpreter, and gives back."""

from __future__ import annotations

import gc
import sys

import pytest

from fingerpost.surfaces.http.processes import GC_THRESHOLD, SWITCH_INTERVAL_S, tune_for_serving


@pytest.fixture(autouse=True)
def unfreeze() -> None:
    gc.unfreeze()  # what the collection of tests froze


def test_threads_take_short_turns_while_serving_and_garbage_is_looked_for_rarely() -> None:
    before = (sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count())
    with tune_for_serving():
        assert abs(sys.getswitchinterval() - SWITCH_INTERVAL_S) < 1e-9 < before[0] - SWITCH_INTERVAL_S
        assert gc.get_threshold()[0] == GC_THRESHOLD
        assert gc.get_freeze_count() > before[2]
    assert (sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count()) == before


def test_the_last_server_to_stop_restores_the_defaults() -> None:
    before = (sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count())
    one, two = tune_for_serving(), tune_for_serving()
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert abs(sys.getswitchinterval() - SWITCH_INTERVAL_S) < 1e-9
    two.__exit__(None, None, None)
    assert (sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count()) == before
