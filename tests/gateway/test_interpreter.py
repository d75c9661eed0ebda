"""What serving changes about the interpreter, and gives back."""

from __future__ import annotations

import gc
import sys

from fingerpost.surfaces.web.interpreter import COLLECT_AFTER, TURN_SECONDS, tuned_for_serving


def test_threads_take_short_turns_while_serving_and_garbage_is_looked_for_rarely() -> None:
    before = (sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count())
    with tuned_for_serving():
        assert abs(sys.getswitchinterval() - TURN_SECONDS) < 1e-9 < before[0] - TURN_SECONDS
        assert gc.get_threshold()[0] == COLLECT_AFTER
        assert gc.get_freeze_count() > before[2]
    assert (sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count()) == before


def test_whoever_serves_last_gives_back_what_was_usual() -> None:
    before = (sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count())
    one, two = tuned_for_serving(), tuned_for_serving()
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert abs(sys.getswitchinterval() - TURN_SECONDS) < 1e-9
    two.__exit__(None, None, None)
    assert (sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count()) == before
