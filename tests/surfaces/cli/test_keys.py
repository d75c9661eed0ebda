"""`fingerpost keys`, as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from click import UsageError
from click.testing import CliRunner, Result

from fingerpost.errors import ConfigError
from fingerpost.events import KeyChanged
from fingerpost.store import Store
from fingerpost.surfaces.cli.commands import build_command
from tests.requirements import proves


class KeysCommand:
    """Runs the command with a store of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._runner = CliRunner(
            env={"FINGERPOST_STORE__URL": f"sqlite:///{home}/store.db", "HOME": str(home)}
        )

    def runs(self, *arguments: str, command: str = "keys") -> Result:
        settings = self.home / "fingerpost.toml"
        if not settings.exists():
            settings.write_text('[profiles.daily]\n[servers.git]\ncommand = "git-mcp"\n')
        given = [*arguments, "--config", str(settings)]
        return self._runner.invoke(build_command(command), given, standalone_mode=False)

    def reads(self, *arguments: str) -> Any:
        return json.loads(self.runs(*arguments, "--json").stdout)


@pytest.fixture
def person(tmp_path: Path) -> KeysCommand:
    return KeysCommand(tmp_path)


@proves("G10")
def test_a_key_is_shown_once_listed_with_what_it_opens_and_revoked(person: KeysCommand) -> None:
    made = person.runs(
        "add", "ci", "--server", "git", "--tool", "git/log*", "--effect", "read", "--profile", "daily"
    )
    key = made.stdout.strip()
    assert key.startswith("fp_")
    assert "\n" not in key  # stdout is the key alone: it can be piped
    assert "servers git; tools git/log*; effects read; profiles daily" in made.stderr
    assert "note" not in made.stderr
    listed = person.runs()
    assert "ci" in listed.stdout
    assert "effects read" in listed.stdout
    assert key not in listed.stdout
    assert person.runs("revoke", "ci").return_value == 0
    assert "revoked" in person.runs("list").stdout
    again = person.runs("revoke", "ci")
    assert again.return_value == 1
    assert "fingerpost keys" in again.stderr


@proves("G10")
def test_programs_get_json_without_the_hash(person: KeysCommand) -> None:
    made = person.reads("add", "laptop", "--expires", "30d")
    assert made["key"].startswith(f"fp_{made['key_id'].removeprefix('key_')}_")
    (kept,) = person.reads("list")
    assert kept["state"].startswith("good until")
    assert "digest" not in kept
    assert "key" not in kept
    assert person.reads("revoke", "laptop") == {"name": "laptop", "revoked": True}


@pytest.mark.parametrize("when", ["45m", "12h", "30d", "2w", "2999-01-31"])
def test_when_a_key_ends_can_be_said_in_words_people_use(person: KeysCommand, when: str) -> None:
    assert person.reads("add", "laptop", "--expires", when)["expires"] is not None


@pytest.mark.parametrize("when", ["soon", "30", "-3d", "2026-13-01", ""])
def test_an_end_that_is_none_is_explained(person: KeysCommand, when: str) -> None:
    done = person.runs("add", "laptop", "--expires", when)
    assert "30d" in str(done.exception)
    assert person.reads("list") == []


def test_names_that_nothing_has_are_pointed_out(person: KeysCommand) -> None:
    done = person.runs("add", "ci", "--server", "gti", "--server", "g*", "--profile", "dayly")
    assert "there is no server named gti" in done.stderr
    assert "there is no profile named dayly" in done.stderr
    assert "g*" not in done.stderr.split("ci opens")[0]


def test_a_name_that_is_taken_or_past_is_refused_with_the_next_step(person: KeysCommand) -> None:
    person.runs("add", "ci")
    taken = person.runs("add", "ci").exception
    assert isinstance(taken, ConfigError)
    assert "keys revoke ci" in (taken.hint or "")
    assert isinstance(person.runs("add", "local").exception, ConfigError)
    assert isinstance(person.runs("add", "old", "--expires", "2020-01-01").exception, ConfigError)


def test_without_keys_the_next_step_is_named(person: KeysCommand) -> None:
    assert "fingerpost keys add" in person.runs().stdout


@proves("G10")
async def test_making_and_revoking_a_key_is_in_the_audit_trail(person: KeysCommand) -> None:
    def work() -> tuple[str, int]:
        key = person.runs("add", "ci").stdout.strip()
        return key, person.runs("revoke", "ci").return_value

    key, revoked = await anyio.to_thread.run_sync(work)
    assert revoked == 0
    async with Store.open(f"sqlite:///{person.home}/store.db") as store:
        recorded = [entry.event for entry in await store.journal.list_events(kinds=("key_changed",))]
    changes = [event.change for event in recorded if isinstance(event, KeyChanged)]
    assert changes == ["made", "revoked"]
    secret = key.split("_", 2)[2]  # which may hold more of them
    assert len(secret) > 40 and secret not in str(recorded)
    assert KeyChanged.audited


@pytest.mark.slow
@proves("M30", "M32")
def test_quotas_are_set_listed_replaced_and_removed(person: KeysCommand) -> None:
    def runs(*arguments: str) -> Result:
        return person.runs(*arguments, command="quotas")

    assert "no quotas" in runs().stdout
    assert "calls_per_minute 60" in runs("set", "--match", "dana", "--calls-per-minute", "60").stdout
    runs("set", "--match", "dana", "--running", "2", "--cost-per-day", "0.5")
    listed = json.loads(runs("list", "--json").stdout)
    [quota] = listed["items"]
    assert (quota["match"], quota["calls_per_minute"], quota["running"]) == ("dana", None, 2)
    assert listed["use"] == []
    assert "running 2, cost_per_day 0.5" in runs().stdout
    assert isinstance(runs("set", "--match", "dana").exception, UsageError)
    assert runs("remove", quota["quota_id"]).return_value == 0
    assert runs("remove", quota["quota_id"]).return_value == 1


@pytest.mark.slow
@proves("M32")
async def test_users_are_listed_disabled_and_enabled(person: KeysCommand) -> None:
    def runs(*arguments: str) -> Result:
        return person.runs(*arguments, command="users")

    def work() -> list[Any]:
        assert "There are no users" in runs().stdout
        person.runs("add", "laptop", "--user", "dana")
        assert "refused" in runs("set", "dana", "--disabled").stdout
        assert "approver" in runs("set", "token:1234", "--role", "approver").stdout
        listed = json.loads(runs("list", "--json").stdout)
        assert "disabled" in runs().stdout
        assert runs("remove", "dana").return_value == 0
        assert runs("remove", "dana").return_value == 1
        return listed

    dana, other = await anyio.to_thread.run_sync(work)
    assert (dana["name"], dana["disabled"], dana["keys"]) == ("dana", True, ["laptop"])
    assert (other["name"], other["roles"]) == ("token:1234", ["approver"])
    async with Store.open(f"sqlite:///{person.home}/store.db") as store:
        recorded = [
            entry.event.summary() for entry in await store.journal.list_events(kinds=("access_changed",))
        ]
    assert recorded == [
        "the user dana was changed",
        "the user token:1234 was changed",
        "the user dana was removed",
    ]


@proves("M31")
def test_a_key_has_an_owner_and_roles(person: KeysCommand) -> None:
    made = person.reads("add", "laptop", "--user", "dana", "--role", "operator")
    assert (made["user"], made["roles"], made["rights"]) == ("dana", ["operator"], [])
    assert "operator" in person.runs().stdout
