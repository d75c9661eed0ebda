"""Every mistake is explained with its file, its line and its fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fingerpost.errors import ConfigError
from fingerpost.settings.model import Settings
from fingerpost.settings.problems import DEFAULT_ORIGIN
from fingerpost.settings.validation import ValidationContext, validate
from tests.kit.settings_folders import SettingsFolders
from tests.requirements import proves

SIGN_IN = '[gateway.sign_in]\nissuer = "https://id.example"\naudience = "fingerpost"\n'

# What is written, the line that is wrong, what is said about it, and what to do.
TOML_MISTAKES = [
    (
        "[smart_routing]\nmax_tols = 3",
        2,
        "smart_routing.max_tols: is not a setting",
        "did you mean max_tools?",
    ),
    ("max_tools = 3", 1, "max_tools: is not a setting", "it belongs in [smart_routing]"),
    ("[limits]\n\nxyzzy = 3", 3, "is not a setting of [limits]", "remove it; known here: connect_timeout,"),
    ("[smart_routin]\nmode = 'on'", 1, "smart_routin: is not a setting", "did you mean smart_routing?"),
    (
        "[smart_routing]\nmax_tools = 'many'",
        2,
        "must be a whole number of at least 0, not 'many'",
        "max_tools = 30",
    ),
    ("[smart_routing]\nmax_tools = '30'", 2, "must be a whole number", "write max_tools = 30"),
    ("[smart_routing]\nmode = 'yes'", 2, 'must be one of "auto", "on", "off", not \'yes\'', 'mode = "auto"'),
    ("[tool_routing]\nconfidence_threshold = 7", 2, "must be a number from 0 to 1, not 7", "= 0.7"),
    ("[limits]\nconnect_timeout = 0", 2, "must be a number above 0 and at most 600, not 0", "= 30.0"),
    ("[flags]\npins = 1", 2, "must be true or false, not 1", "write pins = true"),
    ("[flags]\npins = 'no'", 2, "must be true or false, not 'no'", "write pins = false"),
    ("[flags]\npins = 'off'", 2, "must be true or false, not 'off'", "write pins = false"),
    ("[flags]\npins = 0", 2, "must be true or false, not 0", "write pins = false"),
    ("[flags]\npins = 'C:\\tools'", 2, "must be true or false, not 'C:\\tools'", "write pins = true"),
    ("[limits]\nlist_pages = 2024-01-01", 2, "holds a date, which", "plain number"),
    ("[limits]\nconnect_timeout = inf", 2, "holds inf, which", "plain number"),
    ("limits = 3", 1, "limits: must be a table, not 3", "limits ="),
    ("[[tools]]\neffect = 'read'", 1, "tools[0].match: is missing", 'add match = "…"'),
    (
        "[[tools]]\nmatch = 'a'\n[[tools]]\nmatch = ''",
        4,
        "tools[1].match: must be text that is not empty",
        "match",
    ),
    ("[[tools]]\nmatch = 'a'\neffect = 'explode'", 3, 'one of "read", "write", "destroy"', 'effect = "read"'),
    (
        "[[rollout]]\nname = 'a'\nsetting = 'store.url'\nvalue = 'x'\nshare = 0.5",
        3,
        "rollout[0].setting: 'store.url' cannot be rolled out",
        "choose from flags.need_gate,",
    ),
    (
        "[[rollout]]\nname = 'a'\nsetting = 'flags.review'\nvalue = 'no'\nshare = 0.5",
        4,
        "rollout[0].value: does not fit flags.review",
        "docs/reference/settings.md",
    ),
    (
        "[[tools]]\nmatch = 'a'\nexclusive_intent = 'pricing'",
        3,
        'tools[0].exclusive_intent: must be one of "files", "code",',
        'exclusive_intent = "files"',
    ),
    ("[[tools]]\nmatch = 'a'\nconflicts = ['b',\n 3]", 4, "conflicts[1]: must be text, not 3", "conflicts ="),
    ("[profiles.x]\nservers = 'a'", 2, "profiles.x.servers: must be a list", 'write servers = ["…"]'),
    ("[[policy]]\ntool = 'a'", 1, "policy[0].verdict: is missing", '"ask", "deny" or "allow"'),
    ("[[policy]]\nverdict = 'ask'\naction = 'ask'", 3, "is not a setting", "did you mean verdict?"),
    ("policy = 'x'", 1, "policy: must be a list", "a line [[policy]]"),
    ("[builtin]\nenabled = ['workspce']", 2, "no built-in server 'workspce'", "did you mean workspace?"),
    ("[profiles.x]\nserver = ['a']", 2, "is not a setting of [profiles.x]", "did you mean servers?"),
    ('[store]\nurl = "mysql://me@db/x"', 2, "the store cannot be kept in 'mysql'", "postgresql://"),
    ('[store]\nurl = "sqlite://"', 2, "the store needs a file", "sqlite:///path"),
    ('[gateway]\npublic_url = "gw.example.com"', 2, "gw.example.com is not an address", "https://"),
    (SIGN_IN + 'algorithms = ["HS256", "none", "ES256"]', 4, "HS256, none cannot be used", "RS256"),
    (SIGN_IN + "algorithms = []", 4, "none cannot be used", "RS256"),
    (SIGN_IN + 'jwks_url = "ftp://x"', 4, "jwks_url: ftp://x is not an https address", "use https"),
    (SIGN_IN.replace("https", "http"), 2, "issuer: http://id.example is not an https address", "use https"),
    ("[limits\nlist_pages = 1", 1, "is not valid TOML", "name = value"),
    ("[limits]\nlist_pages = auto", 2, "is not valid TOML: invalid value", "text in quotes"),
    ("[gateway]\npinned = ['a'\nport = 1", 3, "is not valid TOML: unclosed array", "put a ] after"),
    (
        "[gateway]\npinned = ['a', # one\n\nport = 1",
        4,
        "is not valid TOML: invalid value",
        "close a list with ]",
    ),
    ("[servers.x]\nenv = { A = '1'\n", 2, "is not valid TOML: unclosed inline table", "put a } after"),
    ('[servers.x]\ncommand = "C:\\Users\\me"', 2, "is not valid TOML", "in single quotes"),
    ("[limits]\nlist_pages = 1\nlist_pages = 2", 3, "is not valid TOML: cannot overwrite", "given once"),
    ("[limits]\nlist_pages = 1\nx = '''\nunclosed", 4, "is not valid TOML", "quotes"),
    ("servers = 3", 1, "servers: must be a table for each server", "[servers.name]"),
    ("[servers]\nx = 'npx'", 2, "servers.x: must be a table for each server", "[servers.name]"),
    ("a = " + "[" * 3000 + "]" * 3000, 1, "is nested too deeply", "fewer levels"),
]

SERVER_MISTAKES = [
    ('"x": {}', "servers.x: has neither a command nor a url", "add a command"),
    (
        '"x": {"command": "a", "url": "https://a.example"}',
        "has both a command and a url",
        "keep one of the two",
    ),
    ('"x": {"url": "ftp://a.example"}', "servers.x.url: must start with http:// or https://", "https://"),
    ('"x": {"url": "https://"}', "is a url without a host", "https://"),
    (
        '"x": {"url": "https://a.example", "oauth": {"grant": "client_credentials", "clientId": "a"}}',
        "servers.x.oauth: needs client_secret and issuer for the grant client_credentials",
        "add what the authorization server gave you",
    ),
    (
        '"x": {"url": "https://a.example", "auth": "exchange", "oauth": {"clientId": "a"}}',
        "servers.x.oauth: needs client_id, and issuer or token_endpoint, to exchange tokens",
        "add what the authorization server gave you",
    ),
    (
        (
            '"x": {"url": "https://a.example", "auth": "exchange", '
            '"oauth": {"clientId": "a", "issuer": "http://b.example"}}'
        ),
        "must start with https://, because callers' tokens are sent there",
        "use the https address",
    ),
    ('"x": {"url": "https://a b"}', "is a url with a space", "https://"),
    ('"x": {"url": "https://a:port/"}', "is not a valid url", "https://"),
    ('"x": {"type": "stdio", "url": "https://a.example"}', '"stdio" needs a command', 'use "http"'),
    ('"x": {"command": "a", "auth": "exchange"}', "cannot be exchange for a program", "give a url"),
    ('"x": {"type": "sse", "command": "a"}', '"sse" needs a url', 'use "stdio"'),
    (
        '"x": {"type": "ws", "url": "https://a.example"}',
        'must be one of "stdio", "http", "sse", not \'ws\'',
        'a url takes "http" or "sse"',
    ),
    ('"": {"command": "a"}', "has an empty name", "give the server a name"),
    ('"a/b": {"command": "a"}', "has a / in its name", "-"),
    ('"a\\u0007b": {"command": "a"}', "has a control character in its name", "visible"),
    ('"x": "npx"', "mcpServers.x: must be an object with a command or a url", '{"command"'),
    ('"x": {"command": 3}', "servers.x.command: must be text, not 3", '"command": "…"'),
    ('"x": {"command": "a", "args": "b"}', "servers.x.args: must be a list, not 'b'", '"args": ["…"]'),
    ('"x": {"command": "a", "env": ["b"]}', "servers.x.env: must be a table", '"env": { "NAME": "…" }'),
    (
        '"x": {"command": "a", "env": {"B": "${NOT_THERE}"}}',
        "needs the environment variable NOT_THERE",
        "export NOT_THERE",
    ),
    ('"x": {"command": "${input:my-key}"}', "needs the input 'my-key'", "FINGERPOST_INPUT_MY_KEY"),
    ('"x": {"command": "${command:pick}"}', "which only an editor can fill in", "environment variable"),
    (
        '"x": {"command": "a", "envFile": "gone.env"}',
        "names gone.env, which does not exist",
        "check the path",
    ),
    ('"x": {"command": "\\ud800"}', "holds text that is not valid Unicode", "text"),
]


@proves("H2")
@pytest.mark.parametrize(("text", "line", "message", "fix"), TOML_MISTAKES)
def test_a_mistake_in_the_settings_file_names_its_line_and_its_fix(
    folders: SettingsFolders, text: str, line: int, message: str, fix: str
) -> None:
    folders.write("fingerpost.toml", text + "\n")
    (problem,) = folders.check()
    assert (problem.file, problem.line, problem.warning) == ("fingerpost.toml", line, False)
    assert message in str(problem)
    assert fix in problem.fix


@proves("H2")
@pytest.mark.parametrize(("entry", "message", "fix"), SERVER_MISTAKES)
def test_a_mistake_in_a_server_entry_names_its_line_and_its_fix(
    folders: SettingsFolders, entry: str, message: str, fix: str
) -> None:
    file = folders.write("mcp.json", f'{{"mcpServers": {{\n"fine": {{"command": "ok"}},\n\n{entry}\n}}}}')
    (problem,) = folders.check(servers=file)
    assert (problem.file, problem.line, problem.warning) == ("mcp.json", 4, False)
    assert message in str(problem)
    assert fix in problem.fix


@proves("H2")
@pytest.mark.parametrize(("entry", "message", "fix"), SERVER_MISTAKES)
def test_one_wrong_server_does_not_hide_the_others(
    folders: SettingsFolders, entry: str, message: str, fix: str
) -> None:
    file = folders.write(
        "mcp.json",
        f'{{"mcpServers": {{"before": {{"command": "a"}}, {entry}, "after": {{"command": "b"}}}}}}',
    )
    loaded = folders.load(servers=file)
    assert [spec.name for spec in loaded.specs] == ["before", "after"]
    (warning,) = loaded.warnings
    assert warning.warning
    assert message in str(warning)
    assert fix in warning.fix
    with pytest.raises(ConfigError, match=r"mcp\.json:1"):
        folders.load(servers=file, lenient_servers=False)


JSON_MISTAKES = [
    ('{"mcpServers": {\n  "a": {"command": "x"}\n  "b": {}\n}}', 3, "is not valid JSON", "put a comma"),
    ('{"mcpServers": {\n  "a": {"command": "}"}\n}\n', 4, "is not valid JSON", "a } is missing at the end"),
    ('{"mcpServers": {\n  a: {}\n}}', 2, "is not valid JSON", "double quotes"),
    (
        '{"mcpServers": {\n  "a": {"command": "C:\\tools\\x"}\n}}',
        2,
        "is not valid JSON",
        "every backslash twice",
    ),
    (
        '{"mcpServers": {\n  "a": {"command": }\n}}',
        2,
        "is not valid JSON: expecting value",
        "a value is missing",
    ),
    ('{"mcpServers": {}\n}\n}', 3, "is not valid JSON: extra data", "remove everything"),
    ('{"mcpServers": NaN}', 1, "NaN is not a number", "a number that JSON allows"),
    ('[{"command": "x"}]', 1, "does not contain a JSON object", "mcpServers"),
    ('{\n"mcpservers": {"a": {"command": "x"}}}', 2, "contains no servers", "did you mean mcpServers"),
    ('{"mcpServers": []}', 1, "mcpServers: must be an object", 'as {"mcpServers": {"name"'),
    ("{}", 1, "contains no servers", "mcpServers"),
    ("[" * 100_000, 1, "is nested too deeply", "levels"),
    ("/* never closed", 1, "is not valid JSON", ""),
]


@proves("H2")
@pytest.mark.parametrize(("text", "line", "message", "fix"), JSON_MISTAKES)
def test_a_servers_file_that_is_wrong_as_a_whole_stops_loading(
    folders: SettingsFolders, text: str, line: int, message: str, fix: str
) -> None:
    folders.write("mcp.json", text)
    folders.variables["FINGERPOST_SERVERS"] = "mcp.json"
    error = folders.refusal()
    assert str(error).startswith(f"mcp.json:{line}: ")
    assert message in str(error)
    assert fix in (error.hint or "")


@proves("H2")
def test_all_problems_are_told_at_once(folders: SettingsFolders) -> None:
    folders.write("fingerpost.toml", "[limits]\nlist_pages = 0\nschema_depth = 'x'\n[flags]\nnope = 1\n")
    folders.variables["SMART_ROUTING_MAX_TOOLS"] = "lots"
    error = folders.refusal()
    assert len(error.problems) == 4
    assert str(error).startswith("4 problems in the settings")
    for part in (
        "fingerpost.toml:2",
        "fingerpost.toml:3",
        "fingerpost.toml:5",
        "SMART_ROUTING_MAX_TOOLS",
        "fix: ",
    ):
        assert part in str(error)


@proves("H2")
def test_a_wrong_variable_is_explained_with_the_variable_to_set(folders: SettingsFolders) -> None:
    folders.variables["FINGERPOST_LIMITS__LIST_PAGES"] = "many"
    error = folders.refusal()
    assert "environment FINGERPOST_LIMITS__LIST_PAGES: limits.list_pages: must be a whole number" in str(
        error
    )
    assert error.hint == "write FINGERPOST_LIMITS__LIST_PAGES=200"


@proves("H2")
def test_a_wrong_argument_is_explained_as_an_argument(folders: SettingsFolders) -> None:
    (problem,) = folders.check(overrides={"smart_routing.mode": "sometimes"})
    assert problem.origin.kind == "argument"
    assert 'one of "auto", "on", "off"' in problem.message


def test_a_name_given_twice_in_json_is_a_problem_and_the_last_one_counts(folders: SettingsFolders) -> None:
    file = folders.write("mcp.json", '{"mcpServers": {\n"a": {"command": "x"},\n"a": {"command": "y"}}}')
    (problem,) = folders.check(servers=file)
    assert str(problem) == "mcp.json:3: mcpServers.a: is written twice, first on line 2"
    assert [spec.command for spec in folders.load(servers=file).specs] == ["y"]


def test_a_slip_in_a_servers_key_is_a_warning_and_client_keys_are_silent(folders: SettingsFolders) -> None:
    entry = {
        "command": "x",
        "agrs": ["a"],
        "autoApprove": [],
        "gallery": True,
        "timeout": 60,
        "alwaysAllow": [],
    }
    file = folders.write("mcp.json", json.dumps({"mcpServers": {"a": entry}}))
    (warning,) = folders.load(servers=file).warnings
    assert warning.message == 'unknown key "agrs" in server "a"; it is ignored'
    assert warning.fix == "did you mean args?"


def test_settings_without_effect_are_a_warning(folders: SettingsFolders) -> None:
    folders.write(
        "fingerpost.toml",
        '[servers.a]\ncommand = "x"\nheaders = { A = "b" }\n'
        '[servers.b]\nurl = "https://b.example"\ncwd = "."\n',
    )
    loaded = folders.load()
    assert [warning.path for warning in loaded.warnings] == ["servers.a.headers", "servers.b.cwd"]
    assert len(loaded.specs) == 2


def test_bytes_that_are_not_utf8_are_named_with_their_line(folders: SettingsFolders) -> None:
    (folders.cwd / "fingerpost.toml").write_bytes(b"[limits]\n# caf\xe9\n")
    assert str(folders.refusal()) == "fingerpost.toml:2: is not UTF-8 text"


def test_a_byte_order_mark_windows_line_ends_and_tabs_are_fine(folders: SettingsFolders) -> None:
    (folders.cwd / "fingerpost.toml").write_bytes(b"\xef\xbb\xbf[limits]\r\n\tlist_pages = 'x'\r\n")
    assert str(folders.refusal()).startswith("fingerpost.toml:2: limits.list_pages:")
    (folders.cwd / "fingerpost.toml").unlink()
    (folders.cwd / "mcp.json").write_bytes(b'\xef\xbb\xbf{\r\n\t// c\r\n\t"mcpServers": {\r\n"a": {}}}')
    (problem,) = folders.check(servers=Path("mcp.json"))
    assert problem.line == 4


def test_a_folder_an_odd_path_and_a_huge_file_are_explained(folders: SettingsFolders, tmp_path: Path) -> None:
    folders.variables["FINGERPOST_CONFIG"] = str(tmp_path)
    assert str(folders.refusal()).endswith("is a folder")
    folders.variables["FINGERPOST_CONFIG"] = "a\0b.toml"
    assert "cannot be read" in str(folders.refusal())
    huge = folders.cwd / "huge.toml"
    with huge.open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    folders.variables["FINGERPOST_CONFIG"] = "huge.toml"
    assert "is larger than 16 MiB" in str(folders.refusal())


@pytest.mark.parametrize("depth", [120, 400, 900])
def test_deeply_nested_values_inside_an_entry_are_explained(folders: SettingsFolders, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    file = folders.write("mcp.json", f'{{"mcpServers": {{"a": {{"command": "x", "args": {deep}}}}}}}')
    (problem,) = folders.check(servers=file)
    assert str(problem) == "mcp.json:1: is nested too deeply"


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"servers_file": "servers.json", "narrow": {"max_tools": 3}, "models": {"lite": {"model": "small"}}},
        {"policy": [{"verdict": "deny", "tool": "a/*"}], "narrow": {"max_tools": 3}},
    ],
)
def test_sections_validated_one_by_one_are_the_settings(values: dict[str, object]) -> None:
    settings, problems = validate(Settings, values, ValidationContext(lambda _: DEFAULT_ORIGIN))
    assert settings is not None
    assert settings == Settings.model_validate_json(json.dumps(values))
    assert settings.model_dump(mode="json", exclude_unset=True) == values
    assert problems == ()
