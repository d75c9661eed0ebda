"""The effective settings, each with its origin. Secrets are masked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Final

import anyio.to_thread
from pydantic import Field

from fingerpost.frozen import frozen
from fingerpost.records import Json, Right
from fingerpost.redaction import scrub_json
from fingerpost.router import Router
from fingerpost.settings import Loaded, Settings
from fingerpost.settings.problems import ValueOrigin
from fingerpost.settings.reference import build_rows, list_sections
from fingerpost.surfaces.api.operation import ApiProblem, ApiRequest, OperationGroup, declare_operation
from fingerpost.surfaces.api.visibility import check_unscoped

# Set by the program that opened the router.
PROGRAM_ORIGIN: Final = ValueOrigin(kind="argument", name="settings")


@frozen
class SettingsQuery:
    """Filter of settings."""

    section: Annotated[str | None, Field(max_length=100, description="Such as `smart_routing`")] = None
    changed: Annotated[bool, Field(description="Only what is not a default")] = False


@frozen
class SettingLine:
    """One setting. `kind` is default, file, environment or argument; `origin` names the file, variable or
    argument.
    """

    path: str
    value: Json
    origin: str
    kind: str


@frozen
class SettingsView:
    """The settings, in the format of `fingerpost config show --json`."""

    settings: tuple[SettingLine, ...]
    sections: tuple[str, ...]
    files: tuple[str, ...]
    warnings: tuple[str, ...]


class SettingsOperations(OperationGroup):
    """The operation about settings. `loaded` is where they were read from, if known."""

    tag = "settings"

    def __init__(self, router: Router, loaded: Loaded | None) -> None:
        self._settings = router.settings
        self._loaded = loaded

    @cached_property
    def _lines(self) -> tuple[SettingLine, ...]:
        return tuple(
            SettingLine(
                path=row.path,
                value=scrub_json(row.value),  # pyright: ignore[reportArgumentType] - it is JSON
                origin=str(row.origin),
                kind=row.origin.kind,
            )
            for row in build_rows(self._loaded or _build_loaded(self._settings))
        )

    @declare_operation("GET", "/api/settings", right=Right.WATCH, problems=(404,))
    async def get_settings(self, request: ApiRequest, query: SettingsQuery) -> SettingsView:
        """The effective settings and where each comes from; secrets are masked."""
        check_unscoped(request.principal)
        if query.section is not None and query.section not in list_sections():
            detail = f"The sections are {', '.join(list_sections())}."
            raise ApiProblem(404, "There is no such section", detail)
        lines = await anyio.to_thread.run_sync(lambda: self._lines)
        loaded = self._loaded
        wanted = tuple(
            line
            for line in lines
            if query.section in (None, line.path.split(".")[0].split("[")[0])
            and not (query.changed and line.kind == "default")
        )
        return SettingsView(
            settings=wanted,
            sections=list_sections(),
            files=loaded.files if loaded is not None else (),
            warnings=tuple(map(str, loaded.warnings)) if loaded is not None else (),
        )


def _build_loaded(settings: Settings) -> Loaded:
    """Return the origins of settings made by a program: values that differ from the defaults are its own."""
    defaults = _collect_values(Loaded(settings=Settings(), origins={}))
    present = _collect_values(Loaded(settings=settings, origins={}))
    origins = {path: PROGRAM_ORIGIN for path, value in present.items() if defaults.get(path, ...) != value}
    return Loaded(settings=settings, origins=origins)


def _collect_values(loaded: Loaded) -> Mapping[str, object]:
    return {row.path: row.value for row in build_rows(loaded)}
