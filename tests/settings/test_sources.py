"""Which source wins, and that every value knows where it came from."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from fingerpost.settings import Settings
from fingerpost.settings.model import StoreSettings
from fingerpost.store import get_data_directory
from tests.kit.settings_folders import SettingsFolders
from tests.requirements import proves

DEFAULT_STORE = StoreSettings(url=f"sqlite:///{get_data_directory()}/fingerpost.db")


def test_without_any_source_everything_is_the_default(folders: SettingsFolders) -> None:
    loaded = folders.load()
    assert loaded.settings == Settings(store=DEFAULT_STORE)
    assert {origin.kind for origin in loaded.origins.values()} == {"default"}
    assert (loaded.specs, loaded.warnings, loaded.files) == ((), (), ())


@proves("H1")
@pytest.mark.parametrize("given", [*itertools.product([False, True], repeat=3)])
def test_the_strongest_source_given_wins_and_is_named(
    folders: SettingsFolders, given: tuple[bool, bool, bool]
) -> None:
    in_file, in_environment, as_argument = given
    expected, kind, shown = 200, "default", "default"
    if in_file:
        folders.write("fingerpost.toml", "# pages\n[limits]\nlist_pages = 11\n")
        expected, kind, shown = 11, "file", "fingerpost.toml:3"
    if in_environment:
        folders.variables["FINGERPOST_LIMITS__LIST_PAGES"] = "12"
        expected, kind, shown = 12, "environment", "environment FINGERPOST_LIMITS__LIST_PAGES"
    if as_argument:
        expected, kind, shown = 13, "argument", "argument limits.list_pages"
    loaded = folders.load(overrides={"limits.list_pages": 13 if as_argument else None})
    assert loaded.settings.limits.list_pages == expected
    origin = loaded.origins["limits.list_pages"]
    assert (origin.kind, str(origin)) == (kind, shown)
    assert loaded.settings.limits.schema_depth == 64


@proves("A13")
def test_the_seven_values_of_tool_routing_can_be_set_in_the_file_and_in_the_environment(
    folders: SettingsFolders,
) -> None:
    folders.write(
        "fingerpost.toml",
        """
        [tool_routing]
        enabled = false
        selection_temperature = 0
        review_temperature = 1.5
        confidence_threshold = 0.9
        max_reinjections = 1
        allow_write = true
        allow_execute = true
        """,
    )
    routing = folders.load().settings.tool_routing
    assert routing.model_dump() == {
        "enabled": False,
        "selection_temperature": 0.0,
        "review_temperature": 1.5,
        "confidence_threshold": 0.9,
        "max_reinjections": 1,
        "allow_write": True,
        "allow_execute": True,
    }
    for name, text in {"ENABLED": "on", "CONFIDENCE_THRESHOLD": "0.25", "MAX_REINJECTIONS": "5"}.items():
        folders.variables[f"FINGERPOST_TOOL_ROUTING__{name}"] = text
    routing = folders.load().settings.tool_routing
    assert (routing.enabled, routing.confidence_threshold, routing.max_reinjections) == (True, 0.25, 5)
    assert routing.review_temperature == 1.5


@proves("E1")
def test_the_smart_routing_variables_work_under_their_own_names(folders: SettingsFolders) -> None:
    folders.variables |= {
        "ENABLE_SMART_ROUTING": "false",
        "SMART_ROUTING_MAX_TOOLS": "25",
        "SMART_ROUTING_MAX_SERVERS": "3",
        "SMART_ROUTING_TEMPERATURE": "0.5",
        "SMART_ROUTING_MAX_TOKENS": "200",
    }
    loaded = folders.load()
    smart = loaded.settings.smart_routing
    assert smart.model_dump() == {
        "mode": "off",
        "max_tools": 25,
        "max_servers": 3,
        "temperature": 0.5,
        "max_tokens": 200,
        "keep_minutes": 60.0,
        "prompt": None,
    }
    assert str(loaded.origins["smart_routing.max_tools"]) == "environment SMART_ROUTING_MAX_TOOLS"
    assert loaded.warnings == ()


@proves("E1")
@pytest.mark.parametrize(
    ("text", "mode"), [("true", "auto"), ("1", "auto"), ("FALSE", "off"), ("on", "auto")]
)
@pytest.mark.parametrize(
    "name", ["ENABLE_SMART_ROUTING", "LLM_AGENT_SMART_ROUTING", "EXTERNAL_AGENT_SMART_ROUTING"]
)
def test_enabling_smart_routing_means_automatic_and_disabling_means_off(
    folders: SettingsFolders, name: str, text: str, mode: str
) -> None:
    folders.write("fingerpost.toml", '[smart_routing]\nmode = "on"\n')
    folders.variables[name] = text
    assert folders.load().settings.smart_routing.mode == mode


@proves("E1")
def test_our_own_variable_beats_its_alias_and_can_force_smart_routing_on(folders: SettingsFolders) -> None:
    folders.variables |= {
        "ENABLE_SMART_ROUTING": "false",
        "FINGERPOST_SMART_ROUTING__MODE": "on",
        "EXTERNAL_AGENT_MAX_TOOLS": "1",
        "LLM_AGENT_MAX_TOOLS": "2",
        "SMART_ROUTING_MAX_TOOLS": "3",
    }
    smart = folders.load().settings.smart_routing
    assert (smart.mode, smart.max_tools) == ("on", 3)


def test_an_empty_variable_counts_as_not_set(folders: SettingsFolders) -> None:
    folders.variables |= {"FINGERPOST_STORE__URL": "", "SMART_ROUTING_MAX_TOOLS": "", "FINGERPOST_CONFIG": ""}
    assert folders.load().settings == Settings(store=DEFAULT_STORE)


def test_a_misspelt_variable_of_ours_is_a_warning_with_the_nearest_name(folders: SettingsFolders) -> None:
    folders.variables |= {
        "FINGERPOST_LIMITS__LIST_PAGE": "5",
        "FINGERPOST_INPUT_KEY": "x",
        "FINGERPOST_DEBUG": "1",
    }
    (warning,) = folders.load().warnings
    assert "FINGERPOST_LIMITS__LIST_PAGE:" in str(warning)
    assert warning.fix == "did you mean FINGERPOST_LIMITS__LIST_PAGES?"


@pytest.mark.parametrize("winner", ["argument", "variable", "here", "user"])
def test_the_settings_file_is_the_one_named_then_the_one_here_then_the_users(
    folders: SettingsFolders, winner: str
) -> None:
    order = ["user", "here", "variable", "argument"]
    present = order[: order.index(winner) + 1]
    places = {
        "user": folders.home / ".config" / "fingerpost" / "fingerpost.toml",
        "here": folders.cwd / "fingerpost.toml",
        "variable": folders.cwd / "by-variable.conf",
        "argument": folders.cwd / "by-argument.conf",
    }
    for number, name in enumerate(present, start=1):
        places[name].parent.mkdir(parents=True, exist_ok=True)
        places[name].write_text(f"[limits]\nlist_pages = {number}\n", encoding="utf-8")
    if "variable" in present:
        folders.variables["FINGERPOST_CONFIG"] = "by-variable.conf"
    config = Path("by-argument.conf") if "argument" in present else None
    assert folders.load(config=config).settings.limits.list_pages == len(present)


def test_a_file_that_was_named_must_exist(folders: SettingsFolders) -> None:
    folders.variables["FINGERPOST_CONFIG"] = "nowhere.toml"
    assert str(folders.refusal()) == "nowhere.toml: does not exist"


@proves("H1")
def test_the_servers_file_is_named_by_argument_variable_or_settings_in_that_order(
    folders: SettingsFolders,
) -> None:
    for name in ("a", "b", "c"):
        folders.write(f"{name}.json", f'{{"mcpServers": {{"{name}": {{"command": "x"}}}}}}')
    (folders.cwd / "conf").mkdir()
    (folders.cwd / "a.json").rename(folders.cwd / "conf" / "a.json")
    folders.write("conf/fingerpost.toml", 'servers_file = "a.json"\n')
    folders.variables["FINGERPOST_CONFIG"] = "conf/fingerpost.toml"
    assert [spec.name for spec in folders.load().specs] == ["a"]
    folders.variables["FINGERPOST_SERVERS"] = "b.json"
    assert [spec.name for spec in folders.load().specs] == ["b"]
    loaded = folders.load(servers=Path("c.json"))
    assert [spec.name for spec in loaded.specs] == ["c"]
    assert str(loaded.origins["servers_file"]) == "argument --servers"
    assert loaded.files == ("conf/fingerpost.toml", "c.json")


def test_an_entry_of_the_servers_file_replaces_the_whole_entry_of_the_same_name(
    folders: SettingsFolders,
) -> None:
    folders.write(
        "fingerpost.toml",
        """
        [servers.shared]
        command = "old"
        args = ["--old"]
        [servers.mine]
        command = "mine"
        """,
    )
    file = folders.write(
        "mcp.json",
        '{"mcpServers": {"shared": {"command": "new"}, "other": {"url": "https://o.example/mcp"}}}',
    )
    specs = {spec.name: spec for spec in folders.load(servers=file).specs}
    assert list(specs) == ["shared", "mine", "other"]
    assert (specs["shared"].command, specs["shared"].args) == ("new", ())
    assert specs["mine"].origin == "fingerpost.toml:5"
    assert specs["other"].origin == "mcp.json:1"


def test_a_projects_mcp_json_is_offered_but_never_read_unasked(folders: SettingsFolders) -> None:
    folders.write(".mcp.json", '{"mcpServers": {"x": {"command": "x"}}}')
    loaded = folders.load()
    assert loaded.specs == ()
    assert "--servers .mcp.json" in loaded.warnings[0].fix


def test_values_of_a_server_know_their_line_even_when_the_client_calls_them_otherwise(
    folders: SettingsFolders,
) -> None:
    file = folders.write("mcp.json", '{"mcpServers": {\n "x": {\n  "serverUrl": "https://x.example/mcp"\n}}}')
    loaded = folders.load(servers=file)
    assert str(loaded.origins["servers.x.url"]) == "mcp.json:3"
    assert loaded.origins["servers.x.era"].kind == "default"


def test_overrides_for_tools_are_read_with_their_lines(folders: SettingsFolders) -> None:
    folders.write(
        "fingerpost.toml", '[[tools]]\nmatch = "a/*"\n\n[[tools]]\nmatch = "b/*"\neffect = "read"\n'
    )
    loaded = folders.load()
    assert [override.match for override in loaded.settings.tools] == ["a/*", "b/*"]
    assert str(loaded.origins["tools[1].effect"]) == "fingerpost.toml:6"


def test_servers_cannot_be_given_as_a_single_argument(folders: SettingsFolders) -> None:
    (problem,) = folders.check(overrides={"servers.x.enabled": False})
    assert str(problem) == "argument servers.x.enabled: cannot be given as an argument"
