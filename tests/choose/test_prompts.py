from __future__ import annotations

from fingerpost.choose.instructions import build_system_prompt
from tests.requirements import proves


@proves("B5")
def test_the_prompt_has_persona_tools_and_directives_in_this_order() -> None:
    whole = build_system_prompt(
        persona=" You are Ada. ", instructions="Use tools.", directives="Say {{wave}}."
    )
    assert whole == "# PERSONA\nYou are Ada.\n\n# TOOLS\nUse tools.\n\n# DIRECTIVES\nSay {{wave}}."


@proves("B5")
def test_sections_that_say_nothing_are_left_out() -> None:
    assert build_system_prompt(instructions="Use tools.") == "# TOOLS\nUse tools."
    assert build_system_prompt(persona="  ", directives="x") == "# DIRECTIVES\nx"
    assert build_system_prompt() == ""


def test_half_characters_are_replaced_so_that_the_prompt_can_be_sent() -> None:
    assert build_system_prompt(persona="a\ud800b").encode() == "# PERSONA\na\ufffdb".encode()
