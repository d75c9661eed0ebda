"""A sign of life now and then, of servers at an address: a child's end is seen without asking."""

from __future__ import annotations

import anyio

from fingerpost.errors import FingerpostError, ToolTimeout
from fingerpost.servers.connection import ServerConnection
from fingerpost.servers.failures import build_connection_failure, is_connection_lost
from fingerpost.servers.lifeline import ConnectionFailure

HEARTBEAT_SECONDS = 15.0
PROBE_TIMEOUT = 10.0
MISSED_PROBES = 2


async def probe_periodically(connection: ServerConnection) -> None:
    """Probe when it was quiet for a while or somebody doubts it; what does not answer has ended."""
    missed = 0
    while True:
        with anyio.move_on_after(HEARTBEAT_SECONDS) as quiet:
            await connection.lifeline.wait_for_probe_request()
        if quiet.cancelled_caught and connection.in_flight_count:
            continue  # calls under way are sign of life enough, or will fail on their own
        try:
            with anyio.fail_after(PROBE_TIMEOUT):
                await connection.probe()
            missed = 0
        except (TimeoutError, ToolTimeout):
            missed += 1
            if missed >= MISSED_PROBES:
                connection.lifeline.end(
                    ConnectionFailure(reason=f"no sign of life for {missed * PROBE_TIMEOUT:g} s")
                )
        except FingerpostError as error:
            if is_connection_lost(error):
                connection.lifeline.end(build_connection_failure(error))
