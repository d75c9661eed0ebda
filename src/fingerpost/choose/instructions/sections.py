"""What a prompt says besides its tools: who the assistant is, and what the client can act on.

Whatever a request says itself comes first, then its profile, then the settings.
"""

from __future__ import annotations

from collections.abc import Mapping

from fingerpost.settings import ProfileSettings


def persona_under(profile: ProfileSettings | None, asked: str | None, usual: str | None) -> str | None:
    """Who the assistant is. `usual` is what the settings say."""
    return asked or (None if profile is None else profile.persona) or usual


def directives_under(profile: ProfileSettings | None, asked: str | None, usual: str | None) -> str:
    """What the client can act on: in general, then the profile's sections, as they were written."""
    if profile is None:
        return asked or usual or ""
    return directive_sections(asked or profile.instructions or usual, profile.directives)


def directive_sections(general: str | None, sections: Mapping[str, str]) -> str:
    """The general words, then each section under its name."""
    named = (f"## {_heading(name)}\n{text.strip()}" for name, text in sections.items() if text.strip())
    return "\n\n".join(part for part in ((general or "").strip(), *named) if part)


def _heading(name: str) -> str:
    return " ".join(name.split())
