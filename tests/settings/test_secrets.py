"""A secret that is read is never shown: not in reprs, problems, `config show` or logs."""

from __future__ import annotations

import json
from zlib import crc32

import pytest

from fingerpost.redaction import MASK, scrub
from fingerpost.settings.reference import build_rows
from tests.kit.settings_folders import SettingsFolders
from tests.requirements import proves

SECRET_PLACES = [
    ({"command": "x", "env": {"ANY": "${A_VARIABLE}"}}, "servers.x.env.ANY"),
    ({"command": "x", "env": {"ANY": "before ${A_VARIABLE} after"}}, "servers.x.env.ANY"),
    ({"command": "x", "env": {"API_KEY": "{canary}"}}, "servers.x.env.API_KEY"),
    ({"command": "x", "args": ["--api-key", "{canary}"]}, "servers.x.args"),
    ({"command": "x", "args": ["--token={canary}"]}, "servers.x.args"),
    ({"command": "x", "args": ["${A_VARIABLE}"]}, "servers.x.args"),
    ({"url": "https://h.example/mcp?key=${A_VARIABLE}"}, "servers.x.url"),
    ({"url": "https://h.example/mcp?access_token={canary}"}, "servers.x.url"),
    ({"url": "https://me:{canary}@h.example/mcp"}, "servers.x.url"),
    (
        {"url": "https://h.example", "headers": {"Authorization": "Bearer {canary}"}},
        "servers.x.headers.Authorization",
    ),
    ({"url": "https://h.example", "headers": {"X-Any": "${A_VARIABLE}"}}, "servers.x.headers.X-Any"),
    ({"command": "x", "env": {"MAPS_KEY": "{canary}"}}, "servers.x.env.MAPS_KEY"),
    ({"command": "x", "args": ["--maps-key", "{canary}"]}, "servers.x.args"),
    ({"url": "https://h.example", "headers": {"X-Auth": "{canary}"}}, "servers.x.headers.X-Auth"),
    (
        {"url": "https://h.example", "headers": {"Ocp-Apim-Subscription-Key": "{canary}"}},
        "servers.x.headers.Ocp-Apim-Subscription-Key",
    ),
    ({"url": "https://h.example", "headers": {"X-Acme": "{canary}"}}, "servers.x.headers.X-Acme"),
    ({"url": "https://h.example", "oauth": {"clientSecret": "{canary}"}}, "servers.x.oauth.client_secret"),
]


@proves("F49")
@pytest.mark.parametrize(("entry", "path"), SECRET_PLACES)
def test_a_secret_of_a_server_is_masked_wherever_it_would_show(
    folders: SettingsFolders, entry: object, path: str
) -> None:
    canary = f"canary-{crc32(json.dumps(entry).encode())}"
    folders.variables["A_VARIABLE"] = canary
    file = folders.write("mcp.json", json.dumps({"mcpServers": {"x": entry}}).replace("{canary}", canary))
    loaded = folders.load(servers=file)
    assert loaded.specs, loaded.warnings
    shown = {row.path: row.value for row in build_rows(loaded)}
    assert canary not in json.dumps(shown)
    assert MASK in json.dumps(shown[path])
    assert canary not in scrub(f"a log line with {canary} in it")
    assert canary not in repr(loaded.settings)


@proves("F49")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"PIN": "${A_VARIABLE}"}},
        {"command": "x", "args": ["--password", "1x9"]},
        {"command": "x", "env": {"PASSWORD": "1x9"}},
        {"command": "x", "envFile": ".env"},
    ],
)
def test_a_secret_too_short_for_the_log_filter_is_still_masked_in_show(
    folders: SettingsFolders, entry: object
) -> None:
    folders.variables["A_VARIABLE"] = "1x9"
    folders.write(".env", "PIN=1x9\n")
    loaded = folders.load(servers=folders.write("mcp.json", json.dumps({"mcpServers": {"x": entry}})))
    assert loaded.specs
    assert "1x9" not in str([row.value for row in build_rows(loaded)])


@proves("F49")
def test_the_password_of_the_store_is_masked(folders: SettingsFolders) -> None:
    folders.variables["FINGERPOST_STORE__URL"] = "postgresql://me:canary%2Fstore%2Fpass@db.example/fp"
    loaded = folders.load()
    (row,) = (row for row in build_rows(loaded, "store") if row.path == "store.url")
    assert row.value == f"postgresql://me:{MASK}@db.example/fp"
    assert "canary" not in repr(loaded.settings)
    assert scrub("connecting as canary/store/pass") == f"connecting as {MASK}"


@proves("F49")
def test_a_problem_never_quotes_a_secret(folders: SettingsFolders) -> None:
    folders.variables["A_VARIABLE"] = "canary://in a bad url"
    entries = {
        "a": {"url": "${A_VARIABLE}"},
        "b": {"command": "x", "env": {"TOKEN": ["canary-list"]}},
        "c": {"command": "x", "oauth": {"clientSecret": 12345678}},
    }
    file = folders.write("mcp.json", json.dumps({"mcpServers": entries}))
    text = "\n".join(f"{problem} {problem.fix}" for problem in folders.check(servers=file))
    assert text.count("mcp.json:1") == 3
    assert "canary" not in text
    assert "12345678" not in text


@proves("F49")
def test_of_headers_only_the_plainly_harmless_are_shown(folders: SettingsFolders) -> None:
    headers = {
        "Accept": "application/json",
        "X-Api-Version": "2022-11-28",
        "X-Tenant": "acme",
        "X-Auth": "q7",
    }
    file = folders.write(
        "mcp.json", json.dumps({"mcpServers": {"x": {"url": "https://h", "headers": headers}}})
    )
    shown = {row.path: row.value for row in build_rows(folders.load(servers=file), "servers")}
    assert shown["servers.x.headers.Accept"] == "application/json"
    assert shown["servers.x.headers.X-Api-Version"] == "2022-11-28"
    assert shown["servers.x.headers.X-Tenant"] == shown["servers.x.headers.X-Auth"] == MASK


@pytest.mark.parametrize(("name", "value"), [("SORT_KEY", "created_at"), ("PROXY_AUTH", "negotiate")])
def test_a_word_under_a_suspicious_name_stays_readable_elsewhere(
    folders: SettingsFolders, name: str, value: str
) -> None:
    entry = {"command": "x", "env": {name: value}}
    loaded = folders.load(servers=folders.write("mcp.json", json.dumps({"mcpServers": {"x": entry}})))
    assert value not in str([row.value for row in build_rows(loaded, "servers")])
    assert scrub(f"sorted by {value}") == f"sorted by {value}"


@pytest.mark.parametrize(
    ("name", "value"),
    [("LOG_LEVEL", "warning"), ("HOME", None), ("DATA_DIR", "/var/lib/data-1"), ("STAGE", "production")],
)
def test_ordinary_words_from_variables_do_not_become_masks(
    folders: SettingsFolders, name: str, value: str | None
) -> None:
    folders.variables |= {} if value is None else {name: value}
    file = folders.write(
        "mcp.json", f'{{"mcpServers": {{"x": {{"command": "x", "env": {{"ANY": "${{{name}}}"}}}}}}}}'
    )
    loaded = folders.load(servers=file)
    text = f"the {folders.environ[name]} stays readable"
    assert scrub(text) == text
    assert folders.environ[name] in [row.value for row in build_rows(loaded, "servers")]


def test_rows_tell_value_and_origin_of_every_setting(folders: SettingsFolders) -> None:
    folders.write(
        "fingerpost.toml", '[smart_routing]\nmode = "on"\n[[tools]]\nmatch = "a/*"\nkeywords = ["x"]\n'
    )
    loaded = folders.load()
    shown = {row.path: (row.value, str(row.origin)) for row in build_rows(loaded)}
    assert shown["smart_routing.mode"] == ("on", "fingerpost.toml:2")
    assert shown["smart_routing.max_tools"] == (30, "default")
    assert shown["tools[0].keywords"] == (["x"], "fingerpost.toml:5")
    assert [row.path for row in build_rows(loaded, "store")] == [
        "store.url",
        "store.secret",
        "store.secret_file",
        "store.flush_ms",
        "store.lease_seconds",
        "store.keep_days",
        "store.max_bytes",
    ]
