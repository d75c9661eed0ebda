from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost.errors import ConfigError
from fingerpost.settings import check
from fingerpost.store import Store, get_data_directory, resolve_location
from tests.kit.store_samples import ordinary
from tests.kit.tables import table


async def test_without_a_url_the_store_is_a_file_in_the_users_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    async with Store.open() as store:
        await store.journal.append(ordinary())
        assert store.location.file == get_data_directory() / "fingerpost.db"
        assert store.location.anchor == get_data_directory() / "fingerpost.audit.anchor"
        assert tmp_path in get_data_directory().parents


def test_two_databases_in_one_folder_have_two_anchors() -> None:
    assert resolve_location("sqlite:////data/a.db").anchor != resolve_location("sqlite:////data/b.db").anchor


def test_an_sqlite_url_names_a_file_absolute_relative_or_at_home() -> None:
    assert resolve_location("sqlite:////data/a.db").file == Path("/data/a.db")
    assert resolve_location("sqlite:///a.db").file == Path.cwd() / "a.db"
    assert resolve_location("sqlite:///~/a.db").file == Path.home() / "a.db"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_postgresql_url_is_opened_with_psycopg_and_shown_without_its_password(scheme: str) -> None:
    location = resolve_location(f"{scheme}://dana:hunter2hunter2@db.example.org/tools")
    assert location.url.drivername == "postgresql+psycopg"
    assert location.url.password == "hunter2hunter2"
    assert "hunter2" not in location.label
    assert "db.example.org" in location.label
    assert "hunter2" not in location.anchor.name


def test_each_postgresql_database_has_an_anchor_of_its_own() -> None:
    names = [
        "postgresql://db/one",
        "postgresql://db/two",
        "postgresql://db:5433/one",
        "postgresql://other/one",
        "postgresql:///one?host=/run/a",
        "postgresql:///one?host=/run/b",
    ]
    assert len({resolve_location(name).anchor for name in names}) == len(names)
    assert (
        resolve_location("postgresql://me:old@db/one").anchor
        == resolve_location("postgresql://me:new@db/one").anchor
    )


@table("url", ["fingerpost.db", "mysql://db/tools", "sqlite://", "sqlite:///:memory:", "", "://"])
def test_what_cannot_be_a_store_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_location(url)
    assert "sqlite:///" in (caught.value.hint or "")


def test_a_url_that_cannot_be_read_is_not_repeated_in_the_error() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_location("postgresql//dana:hunter2hunter2@db/tools")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["mysql://me@db/x", "sqlite://", "sqlite:///", "sqlite:///:memory:", "nonsense", "sqlite:///a.db",
     "sqlite:////tmp/a.db?mode=rw", "postgresql://me@db/x", "postgresql+psycopg://db/x", "postgres:///x"],
)  # fmt: skip
def test_the_settings_refuse_just_the_places_the_store_refuses(tmp_path: Path, url: str) -> None:
    (tmp_path / "fingerpost.toml").write_text(f'[store]\nurl = "{url}"\n')
    problems = check(cwd=tmp_path, environ={"HOME": str(tmp_path)})
    try:
        resolve_location(url)
    except ConfigError as error:
        assert [problem.message for problem in problems] == [str(error)]
    else:
        assert not problems
