"""A child process: how it is started, and how it and everything it started are ended."""

from __future__ import annotations

import contextlib
import os
import signal

import anyio
import anyio.to_thread
from anyio.abc import Process

from fingerpost.errors import ServerUnavailable
from fingerpost.records import ServerSpec
from fingerpost.servers.watchdog import MARK, find_descendants, kill_descendants

INHERITED_VARIABLES = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")

EOF_GRACE = 1.0  # after closing stdin, which is how a client says goodbye
TERM_GRACE = 1.0  # after SIGTERM to the whole group
KILL_GRACE = 2.0  # after SIGKILL; only the kernel can need longer
EXIT_POLL = 0.02


async def spawn(spec: ServerSpec, mark: str) -> Process:
    """Start the program in a session of its own; it and all it starts carry the mark.

    Raises `ServerUnavailable`, or what the system says.
    """
    if not spec.command:
        message = f"{spec.name} has no command to start"
        raise ServerUnavailable(message, server=spec.name, hint="give it a command, or a url")
    # Starting takes milliseconds; giving up in the middle would leave a child nobody knows of.
    process: Process | None = None
    with anyio.CancelScope(shield=True):
        try:
            process = await anyio.open_process(
                [spec.command, *spec.args],
                env=_build_environment() | dict(spec.env) | {MARK: mark},
                cwd=spec.cwd,
                start_new_session=True,
            )
        except (FileNotFoundError, PermissionError) as error:
            if error.filename is None:  # not every event loop says which file it was
                no_folder = spec.cwd is not None and not await anyio.Path(spec.cwd).is_dir()
                error.filename = spec.cwd if no_folder else spec.command
            raise
    assert process is not None
    return process


def _build_environment() -> dict[str, str]:
    inherited = {name: os.environ.get(name, "") for name in INHERITED_VARIABLES}
    # A value that begins so is a shell function: running a shell would execute it.
    return {name: value for name, value in inherited.items() if value and not value.startswith("()")}


async def wait_for_exit(process: Process, seconds: float) -> bool:
    """Whether it is gone by then."""
    # `Process.wait` also waits for the end of the pipes, which a grandchild can hold open for ever.
    deadline = anyio.current_time() + seconds
    while process.returncode is None:
        if anyio.current_time() >= deadline:
            return False
        await anyio.sleep(EXIT_POLL)
    return True


async def terminate(process: Process) -> None:
    """Ask politely, then firmly, then kill, the child and everything it started. All within bounds."""
    assert process.stdin is not None
    below = await anyio.to_thread.run_sync(find_descendants, process.pid)
    with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.aclose()
    if not await wait_for_exit(process, EOF_GRACE):
        _send_signal(process, signal.SIGTERM)
        await wait_for_exit(process, TERM_GRACE)
    # Also when the child itself is gone: its children are in the same group.
    _send_signal(process, signal.SIGKILL)
    await wait_for_exit(process, KILL_GRACE)
    await anyio.to_thread.run_sync(
        kill_descendants, below
    )  # and those of them that are in groups of their own


def _send_signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def close_pipes(process: Process) -> None:
    """Close what is left of its pipes on our side."""
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await pipe.aclose()
    # asyncio keeps the transport open, and warns about it later, while a stray process holds a pipe end.
    transport: object = getattr(getattr(process, "_process", None), "_transport", None)
    close = getattr(transport, "close", None)
    if callable(close):
        with contextlib.suppress(PermissionError, ProcessLookupError):
            close()


def describe_exit(process: Process) -> str:
    """The end of its output, in words."""
    status = process.returncode
    if status is None:
        return "it closed its output"
    if status < 0:
        return f"its process was ended by {_get_signal_name(-status)}"
    return f"its process exited with status {status}"


def _get_signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
