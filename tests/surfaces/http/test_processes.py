"""What serving changes about the interpreter, and gives back."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
import weakref
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from fingerpost import Router, Server
from fingerpost.catalog.act_model import load_act_model
from fingerpost.narrow.sentence_judge import judge_in_own_process, judge_in_this_process
from fingerpost.records import ServerState
from fingerpost.settings import load
from fingerpost.surfaces.cli.common import open_any_router, open_service_router
from fingerpost.surfaces.cli.services import release_memory_after_sleep, warm_up_service
from fingerpost.surfaces.http.processes import GC_THRESHOLD, SWITCH_INTERVAL_S, tune_for_serving
from fingerpost.testing import served, tool_server
from tests.kit.routers import build_settings
from tests.kit.server_pools import eventually
from tests.kit.sleepy_server import SleepyServer
from tests.kit.stores import place_empty_store


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


class _Node:
    """Refers to itself, so that only a collection finds it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.process
async def test_memory_is_given_back_when_a_server_has_gone_to_sleep(tmp_path: Path) -> None:
    sleepy = SleepyServer(tmp_path)
    settings = build_settings(tmp_path, lifecycle={"idle_seconds": 0.05})
    async with Router([sleepy.spec], settings=settings) as router, anyio.create_task_group() as tasks:
        tasks.start_soon(release_memory_after_sleep, router, 0.0)
        load_act_model()
        left = weakref.ref(_Node())
        await router.connect()
        await eventually(lambda: router.servers.get_status("sleepy").state is ServerState.ASLEEP)
        await eventually(lambda: left() is None and not load_act_model.cache_info().currsize)
        outcome = await router.call("sleepy/look", {"word": "hat"})
        assert outcome.success
        tasks.cancel_scope.cancel()


@pytest.mark.slow
async def test_what_scans_definitions_is_given_back_when_a_service_is_warm(tmp_path: Path) -> None:
    server = tool_server("calc", ["add"], instructions="Call add before you call others.")
    settings = build_settings(tmp_path, flags={"scan_definitions": True})
    async with (
        served(server.server.streamable_http_app()) as base,
        Router([Server.http("calc", f"{base}/mcp")], settings=settings) as router,
    ):
        router.servers.start()
        await warm_up_service(router, always=True)
        assert router.catalog.get_instructions("calc")
        assert not load_act_model.cache_info().currsize


@pytest.mark.parametrize("builtin", ["", "memory"])
async def test_services_judge_suspected_sentences_in_a_process_of_its_own(
    tmp_path: Path, builtin: str
) -> None:
    variables = {
        "FINGERPOST_STORE__URL": place_empty_store(tmp_path),
        "FINGERPOST_BUILTIN__ENABLED": builtin,
    }
    loaded = await to_thread.run_sync(partial(load, environ=variables, cwd=tmp_path))
    async with open_service_router(loaded) as router:
        assert router.catalog.judge is judge_in_own_process
    async with open_any_router(loaded, standalone=True) as router:
        assert router.catalog.judge is judge_in_this_process


_COUNT_HEAPS = """
import ctypes, os, threading
from fingerpost.surfaces.http.processes import use_one_heap
use_one_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier(8)
def allocate():
    together.wait()
    libc.malloc(100_000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


@pytest.mark.process
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have one heap")
def test_all_threads_of_a_service_allocate_from_one_heap() -> None:
    told = subprocess.run(
        [sys.executable, "-c", _COUNT_HEAPS], check=True, capture_output=True, text=True, timeout=60
    )
    assert told.stdout.count("<heap nr=") == 1
