"""The documentation of the settings is the model, and every flag means something."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import fingerpost
from fingerpost.settings import FlagSettings, LimitSettings
from fingerpost.settings.reference import BEGIN, END, insert_reference
from tests.kit.settings_folders import SettingsFolders
from tests.requirements import proves

# What follows recorded use or a person's word is wanted expressly.
OFF_BY_DEFAULT = (
    "adaptive_instructions",
    "adaptive_thresholds",
    "decision_cache",
    "learn_from_feedback",
    "preferences",
    "review_new",
)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_the_limits_on_what_a_server_may_send_do_not_grow_unnoticed() -> None:
    assert LimitSettings().model_dump() == {
        "connect_timeout": 30.0,
        "list_pages": 200,
        "relist_seconds": 30.0,
        "tools_per_server": 20_000,
        "definition_bytes": 262_144,
        "schema_depth": 64,
        "response_bytes": 8_388_608,
        "questions_per_call": 32,
        "notices_per_call": 10_000,
        "notice_bytes": 4_194_304,
        "stderr_bytes": 65_536,
        "reconnect_max": 60.0,
    }


def test_the_page_holds_exactly_the_reference_of_the_model() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written.count(BEGIN) == written.count(END) == 1
    assert written == insert_reference(written), (
        "renew it: see with_reference in fingerpost.settings.reference"
    )


@pytest.mark.slow
@proves("D12")
@pytest.mark.parametrize("flag", FlagSettings.model_fields)
def test_every_flag_is_described_can_be_switched_off_and_is_read(folders: SettingsFolders, flag: str) -> None:
    assert FlagSettings.model_fields[flag].description
    assert getattr(folders.load().settings.flags, flag) is (flag not in OFF_BY_DEFAULT)
    folders.variables[f"FINGERPOST_FLAGS__{flag.upper()}"] = "off"
    assert getattr(folders.load().settings.flags, flag) is False
    assert flag in flags_read_by_the_product()


@cache
def flags_read_by_the_product() -> set[str]:
    """Names read as `….flags.<name>` or `flags.<name>` outside the settings themselves."""
    root = Path(fingerpost.__file__).parent
    found: set[str] = set()
    for path in root.rglob("*.py"):
        if path.is_relative_to(root / "settings"):
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "flags." in text else ():
            if isinstance(node, ast.Attribute) and _is_flags(node.value):
                found.add(node.attr)
    return found


def _is_flags(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lstrip("_") == "flags"
