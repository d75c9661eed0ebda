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
