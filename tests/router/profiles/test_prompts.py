"""The system prompt is made of the profile, the tools and the directives, in this order."""

from __future__ import annotations

from pathlib import Path

from fingerpost.router import RouteKeywords
from fingerpost.testing import ScriptedModel
from tests.kit.profiles import get_system_prompt, small
from tests.requirements import proves

GUIDE = {
    "persona": "You are the guide of a museum.",
    "guidance": "Strongly prefer direct answers.",
    "instructions": "Answer in two sentences.",
    "directives": {"VR/AR": "The person wears a headset.", "Sound": "What you say is read aloud."},
}


@proves("B5")
async def test_a_prompt_is_assembled_from_persona_tools_and_directive_sections(tmp_path: Path):
    model = ScriptedModel(["Sunny."])
    async with small(tmp_path, model, profiles={"guide": GUIDE}) as (router, _, _):
        await router.route("What is the weather forecast for Oslo?", profile="guide", mode="simple")
    prompt = get_system_prompt(model)
    parts = (
        "# PERSONA\nYou are the guide of a museum.",
        "# TOOLS\n",
        "# GUIDANCE\nStrongly prefer direct answers.",
        "# DIRECTIVES\nAnswer in two sentences.",
        "## VR/AR\nThe person wears a headset.",
        "## Sound\nWhat you say is read aloud.",
    )
    places = [prompt.index(part) for part in parts]
    assert places == sorted(places)
    [offered] = [str(tool) for tool in model.asked[0].tools if "weather__get_forecast" in str(tool)]
    assert "Use it when: " in offered and "Not when: " in offered


@proves("B5")
async def test_what_a_request_says_itself_comes_first_and_sections_stay(tmp_path: Path):
    model = ScriptedModel(["Sunny.", "Rainy."])
    small_router = small(tmp_path, model, profiles={"guide": GUIDE}, choose={"persona": "You are usual."})
    async with small_router as (router, _, _):
        own_words = RouteKeywords(
            persona="You are a cat.", directives="Purr.", profile="guide", mode="simple"
        )
        await router.route("What is the forecast?", **own_words)
        own = get_system_prompt(model)
        await router.route("What is the forecast?", mode="simple")
        usual = get_system_prompt(model)
    assert "# PERSONA\nYou are a cat." in own and "museum" not in own
    assert "# DIRECTIVES\nPurr.\n\n## VR/AR\n" in own
    assert "# PERSONA\nYou are usual." in usual
    assert "GUIDANCE" not in usual and "DIRECTIVES" not in usual


@proves("B5")
async def test_the_model_that_selects_hears_the_guidance(tmp_path: Path):
    chosen = '{"reasoning": "r", "tool": null, "arguments": {}, "confidence": 0.9, "alternatives": []}'
    model = ScriptedModel(lambda request: chosen if request.schema is not None else "Sunny.")
    async with small(tmp_path, model, profiles={"guide": GUIDE}) as (router, _, _):
        await router.route("What is the weather forecast for Oslo?", profile="guide", mode="staged")
    first = "\n".join(message.text for message in model.asked[0].messages)
    assert "You choose the tool" in first
    assert "Strongly prefer direct answers." in first
