"""A sign of life now and then, of servers at an address: a child's end is seen without asking."""

from __future__ import annotations

import anyio

from fingerpost.errors import FingerpostError, ToolTimeout
from fingerpost.servers.connection import Connection
from fingerpost.servers.failures import is_loss, setback_of
from fingerpost.servers.lifeline import Setback

HEARTBEAT_SECONDS = 15.0
PROBE_TIMEOUT = 10.0
MISSED_PROBES = 2


async def keep_probing(connection: Connection) -> None:
    """Probe when it was quiet for a while or somebody doubts it; what does not answer has ended."""
    missed = 0
    while True:
        with anyio.move_on_after(HEARTBEAT_SECONDS) as quiet:
            await connection.lifeline.doubted()
        if quiet.cancelled_caught and connection.busy:
            continue  # calls under way are sign of life enough, or will fail on their own
        try:
            with anyio.fail_after(PROBE_TIMEOUT):
                await connection.probe()
            missed = 0
        except (TimeoutError, ToolTimeout):
            missed += 1
            if missed >= MISSED_PROBES:
                connection.lifeline.end(Setback(reason=f"no sign of life for {missed * PROBE_TIMEOUT:g} s"))
        except FingerpostError as error:
            if is_loss(error):
                connection.lifeline.end(setback_of(error))
