"""The clock that deadlines are kept by."""

from __future__ import annotations

import time

# What event loops count by, without asking which loop this is: that is a system call each time.
loop_time = time.monotonic
