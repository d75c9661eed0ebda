"""A profile is a file: read beside the settings, checked with file, line and fix."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.errors import ConfigError
from fingerpost.settings import Loaded, ProfileFiles, check, load
from fingerpost.settings.profiles import read_examples
from tests.requirements import proves


def load_profiles(folder: Path, text: str = "", **files: str) -> Loaded:
    write_profiles(folder, text, **files)
    return load(config=folder / "fingerpost.toml", environ={"HOME": str(folder)}, cwd=folder)


def write_profiles(folder: Path, text: str, **files: str) -> None:
    (folder / "fingerpost.toml").write_text(text)
    (folder / "profiles").mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / "profiles" / f"{name}.toml").write_text(content)


@proves("U14")
def test_a_file_beside_the_settings_is_a_profile_and_says_where_it_is_written(tmp_path: Path):
    found = load_profiles(
        tmp_path,
        "[profiles.written]\n",
        desk='# a comment\ndescription = "Help desk"\n\n[directives]\nVR = "Look up."\n',
    )
    assert set(found.settings.profiles) == {"written", "desk"}
    assert found.settings.profiles["desk"].directives == {"VR": "Look up."}
    assert str(found.origins["profiles.desk.description"]) == "profiles/desk.toml:2"
    assert "profiles/desk.toml" in found.files


@proves("U14")
def test_another_folder_can_be_named_and_other_files_are_left_alone(tmp_path: Path):
    (tmp_path / "who").mkdir()
    (tmp_path / "who" / "v0.3.toml").write_text("mode = 'route'")
    (tmp_path / "who" / ".hidden.toml").write_text("nonsense")
    (tmp_path / "who" / "readme.md").write_text("nonsense")
    found = load_profiles(tmp_path, 'profiles_folder = "who"\n', ignored="nonsense")
    assert {name: profile.mode for name, profile in found.settings.profiles.items()} == {"v0.3": "route"}


def test_without_a_settings_file_no_folder_is_looked_for(tmp_path: Path):
    write_profiles(tmp_path, "", desk="")
    (tmp_path / "fingerpost.toml").unlink()
    assert load(environ={"HOME": str(tmp_path)}, cwd=tmp_path).settings.profiles == {}


@proves("U14", "H2")
@pytest.mark.parametrize(
    ("name", "content", "problem", "fix"),
    [
        ("desk", "description = 3", "/desk.toml:1: profiles.desk.description: must be text", "write desc"),
        ("desk", "\npersna = 'x'", "/desk.toml:2: profiles.desk.persna: is not a setting", "mean persona?"),
        ("desk", "[[policy]]\nverdict = 'no'", "profiles.desk.policy[0].verdict: must be one of", "write"),
        ("desk", "x = [", "profiles/desk.toml:1: profiles.desk: is not valid TOML", "write text in quotes"),
        ("a b", "", 'profiles/a b.toml: profiles."a b": is not a valid name for a profile', "name the file"),
        ("twice", "", "profiles/twice.toml: profiles.twice: is written at fingerpost.toml:1", "keep one"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_file_line_and_fix(
    tmp_path: Path, name: str, content: str, problem: str, fix: str
):
    write_profiles(tmp_path, "[profiles.twice]\n", **{name: content})
    found = check(config=tmp_path / "fingerpost.toml", environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    assert len(found) == 1
    assert problem in str(found[0])
    assert fix in found[0].fix
    with pytest.raises(ConfigError):
        load(config=tmp_path / "fingerpost.toml", environ={"HOME": str(tmp_path)}, cwd=tmp_path)


@proves("B7", "B8")
@pytest.mark.parametrize("name", read_examples())
def test_ready_profiles_are_right(tmp_path: Path, name: str):
    assert set(read_examples()) == {"developer", "kb", "researcher", "v0.3", "v1"}
    profile = load_profiles(tmp_path, "", **{name: read_examples()[name]}).settings.profiles[name]
    assert profile.description
    assert profile.tools


@proves("U14")
@given(
    st.text(alphabet=st.characters(blacklist_categories=["Cs"]))
    | st.sampled_from(list(read_examples().values()))
)
def test_whatever_a_file_holds_its_neighbours_are_read(text: str):
    with TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "odd.toml").write_bytes(text.encode())
        (path / "good.toml").write_text("max_tools = 3")
        files = ProfileFiles(folder=path, shown="profiles")
        reading = files.read()
        assert reading.profiles["good"].max_tools == 3
        assert ("odd" in reading.profiles) is not ("odd" in reading.broken)
        assert bool(reading.problems) is ("odd" in reading.broken)
        mark = files.get_fingerprint()
        (path / "good.toml").write_text("max_tools = 33")
        assert files.get_fingerprint() != mark


@proves("U14")
def test_a_file_that_is_removed_while_the_folder_is_read_is_no_problem(tmp_path: Path):
    os.mkfifo(tmp_path / "a.toml")  # its reader has listed the folder, and waits for the text
    (tmp_path / "b.toml").write_text('servers = ["weather"]')
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(ProfileFiles(folder=tmp_path, shown="profiles").read)
        with (tmp_path / "a.toml").open("w") as text:
            (tmp_path / "b.toml").unlink()
            text.write('servers = ["tickets"]')
        found = reading.result(timeout=10)
    assert ([*found.profiles], found.problems, found.broken) == (["a"], (), frozenset())
