"""The system prompt: who the assistant is, which tools there are, what the client can act on."""

from __future__ import annotations

from typing import Final

from fingerpost.records import to_valid_text

MAX_SECTION_LENGTH: Final = 100_000  # characters


def build_system_prompt(
    *,
    persona: str | None = None,
    instructions: str = "",
    guidance: str = "",
    directives: str | None = None,
) -> str:
    """The sections that say something, always in this order: persona, tools, guidance, directives."""
    sections = (
        ("PERSONA", persona),
        ("TOOLS", instructions),
        ("GUIDANCE", guidance),
        ("DIRECTIVES", directives),
    )
    told = ((name, to_valid_text(text or "")[:MAX_SECTION_LENGTH].strip()) for name, text in sections)
    return "\n\n".join(f"# {name}\n{text}" for name, text in told if text)
