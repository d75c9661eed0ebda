"""Without any model: what is certain is done, the rest is asked, and it is said that no model wrote it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fingerpost import Server
from fingerpost.errors import ConfigError, ModelUnavailable
from fingerpost.records import Mode, RouteOutcome, ServerPaths
from fingerpost.servers.spec import find_server_paths
from fingerpost.testing import ScriptedModel
from tests.kit.routers import create_clock_server, create_file_server, open_router
from tests.requirements import proves

pytestmark = pytest.mark.process


@proves("W4", "B6")
async def test_a_greeting_gets_a_greeting(tmp_path: Path) -> None:
    async with open_router(tmp_path, [create_clock_server()]) as router:
        route = await router.route("Hello!")
    assert (route.outcome, route.mode, route.answered_by) == (RouteOutcome.ANSWERED, Mode.KEYLESS, "no model")
    assert route.answer.startswith("Hello!")
    assert route.packet.context.available_tools == ()  # none is needed, so none is offered


@proves("V10")
async def test_what_is_recorded_claims_only_what_happened(tmp_path: Path) -> None:
    async with open_router(tmp_path, [create_clock_server()]) as router:
        dry = await router.route("What time is it in Tokyo right now?", dry_run=True)
        done = await router.route("What time is it in Tokyo right now?")
    assert (dry.outcome, dry.sources) == (RouteOutcome.ANSWERED, ())
    assert dry.answer.startswith("Dry run: nothing was called.\nwould call time/get_current_time")
    for line in (
        "call_finished: time/get_current_time: not called (dry run)",
        "execution_status_changed: skipped: dry run: nothing was called",
        "tool_result_injected: nothing was called (dry run)",
    ):
        assert line in dry.trace.splitlines()
    assert "execution_status_changed: executed" in done.trace.splitlines()
    assert done.sources == ("time/get_current_time",)
    for words in ("approved", "by no model", "with no model"):
        assert words not in f"{dry.trace}\n{done.trace}"


@proves("W4", "D11")
async def test_a_question_is_answered_by_the_tool_itself_or_by_its_error(tmp_path: Path) -> None:
    async with open_router(tmp_path, [create_clock_server(), create_file_server(tmp_path)]) as router:
        route = await router.route("What time is it in Tokyo right now?")
        failed = await router.route(f"Read the file {tmp_path}/absent.txt")
    assert route.outcome is RouteOutcome.ANSWERED, route.trace
    assert route.sources == ("time/get_current_time",)
    assert '"timezone": "Asia/Tokyo"' in route.answer
    assert "No language model is configured" in route.answer
    assert failed.outcome is RouteOutcome.FAILED
    assert "absent.txt" in failed.answer.splitlines()[0]
    assert "city library" not in failed.answer


@proves("Q1")
async def test_the_only_directory_of_a_server_is_the_one_that_is_meant(tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    desk.mkdir()
    (desk / "note.md").write_text("Buy milk.\n", encoding="utf-8")
    async with open_router(tmp_path, [create_file_server(desk)]) as router:
        route = await router.route("List the files in the folder")
    assert (route.outcome, route.sources) == (RouteOutcome.ANSWERED, ("files/list_directory",)), route.trace
    assert "note.md" in route.answer


@proves("Q1")
def test_paths_are_those_that_a_local_program_was_given(tmp_path: Path) -> None:
    desk, repository, inside = tmp_path / "desk", tmp_path / "app", tmp_path / "app" / "src"
    for folder in (desk, repository / ".git", inside):
        folder.mkdir(parents=True)
    entry = Server.stdio("git", ["mcp-server-git", "--directory", str(desk)], cwd=str(inside))
    paths = find_server_paths(entry)
    assert paths.directories == ()  # where a runner finds its program
    assert [known.path for known in paths.repositories] == [str(repository)]
    assert find_server_paths(replace(entry, command="docker")) == ServerPaths()
    assert find_server_paths(Server.http("far", "https://example.com/mcp")) == ServerPaths()


@proves("W4")
async def test_what_is_missing_is_asked_and_the_answer_completes_the_call(tmp_path: Path) -> None:
    async with open_router(tmp_path, [create_clock_server()]) as router:
        asked = await router.route("Use time/get_current_time")
        assert asked.outcome is RouteOutcome.ASKED
        assert asked.question is not None
        assert [one.name for one in asked.question.missing] == ["timezone"]
        route = await router.reply(asked, "Lisbon")
        assert route.outcome is RouteOutcome.ANSWERED, route.trace
        assert "Europe/Lisbon" in route.answer
        assert route.packet_id == asked.packet_id


@proves("W4", "A5")
async def test_a_write_still_asks_a_person(tmp_path: Path) -> None:
    folder = tmp_path / "desk"
    folder.mkdir()
    async with open_router(tmp_path, [create_file_server(folder)]) as router:
        route = await router.route(f'Use files/create_directory to create the directory "{folder}/new"')
        assert route.outcome is RouteOutcome.WAITING, route.trace
        assert not (folder / "new").exists()
        assert route.pending is not None
        done = await router.resume(route, route.pending.approve(by="dana"))
        assert done.outcome is RouteOutcome.ANSWERED
        assert (folder / "new").is_dir()


@proves("W6")
async def test_when_no_model_answers_the_way_without_one_is_taken_and_the_reason_kept(tmp_path: Path) -> None:
    gone = ModelUnavailable("the model cannot be reached", model="scripted")
    async with open_router(tmp_path, [create_clock_server()], ScriptedModel(lambda request: gone)) as router:
        route = await router.route("What time is it in Tokyo right now?")
    assert route.outcome is RouteOutcome.ANSWERED, route.trace
    assert route.sources == ("time/get_current_time",)
    assert "No language model is configured" not in route.answer  # one is; it did not answer
    assert "cannot be reached" in route.detail


async def test_a_mode_that_needs_a_model_says_so(tmp_path: Path) -> None:
    async with open_router(tmp_path, [create_clock_server()]) as router:
        with pytest.raises(ConfigError, match="needs a language model"):
            await router.route("hello", mode="react")
        with pytest.raises(ConfigError, match="no mode 'magic'"):
            await router.route("hello", mode="magic")


@proves("W4")
async def test_what_was_read_is_shown_also_where_it_cannot_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "desk"
    folder.mkdir()
    (folder / "note.md").write_text("Buy milk.\n", encoding="utf-8")
    (folder / "old.md").write_text("Old.\n", encoding="utf-8")
    async with open_router(tmp_path, [create_clock_server(), create_file_server(folder)]) as router:
        for then, outcome, text in (
            ("", RouteOutcome.ANSWERED, ""),
            (f" and then delete {folder}/old.md", RouteOutcome.ANSWERED, "Not done"),
            (" and then translate it into French", RouteOutcome.ANSWERED, "Not done"),
            (" and then summarize it", RouteOutcome.ANSWERED, "Not done"),
            (f" and then write {folder}/new.md", RouteOutcome.ASKED, "files/write_file"),
        ):
            pieces: list[str] = []
            route = await router.route(f"Read the file {folder}/note.md{then}", on_text=pieces.append)
            assert route.outcome is outcome, (then, route.answer)
            assert "Buy milk." in route.answer, then
            assert text in route.answer, then
            assert "Buy milk." in "".join(pieces), then


@proves("W4", "D11")
async def test_without_a_usable_tool_the_reason_is_the_answer(tmp_path: Path) -> None:
    question = "What time is it in Tokyo right now?"
    deny = [{"verdict": "deny", "effect": "read", "reason": "closed today"}]
    async with open_router(tmp_path / "a", [create_clock_server()], policy=deny) as router:
        denied = await router.route(question)
    assert denied.outcome is RouteOutcome.DECLINED
    assert denied.answer.startswith("No tool may be used: closed today (rule 1")
    assert "time/" not in denied.answer
    async with open_router(tmp_path / "c", [Server.stdio("x", ["no-such-program"])]) as router:
        down = await router.route(question)
    assert down.outcome is RouteOutcome.FAILED
    assert "x cannot be started: no-such-program was not found; install it" in down.answer
    assert "fingerpost doctor" not in down.answer
