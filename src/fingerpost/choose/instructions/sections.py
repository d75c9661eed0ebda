"""What a prompt says besides its tools: who the assistant is, and what the client can act on.

Whatever a request says itself comes first, then its profile, then the settings.
"""

from __future__ import annotations

from collections.abc import Mapping

from fingerpost.settings import ProfileSettings


def choose_persona(profile: ProfileSettings | None, requested: str | None, default: str | None) -> str | None:
    """Who the assistant is. `usual` is what the settings say."""
    return requested or (None if profile is None else profile.persona) or default


def build_directives(profile: ProfileSettings | None, requested: str | None, default: str | None) -> str:
    """What the client can act on: in general, then the profile's sections, as they were written."""
    if profile is None:
        return requested or default or ""
    return join_directive_sections(requested or profile.instructions or default, profile.directives)


def join_directive_sections(general: str | None, sections: Mapping[str, str]) -> str:
    """The general words, then each section under its name."""
    named = (f"## {_format_heading(name)}\n{text.strip()}" for name, text in sections.items() if text.strip())
    return "\n\n".join(part for part in ((general or "").strip(), *named) if part)


def _format_heading(name: str) -> str:
    return " ".join(name.split())
