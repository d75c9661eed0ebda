"""Which directives there are: one record each, from which its tool is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.builtin.directives import shapes
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject


@frozen
class DirectiveKind:
    """One kind of directive. `target` says what it is about; "" where it is about the whole scene."""

    name: str
    title: str
    description: str
    sentence: str  # what was given, in words; {target} and the parameters may stand in it
    target: str = ""
    parameters: Mapping[str, JsonObject]
    required: tuple[str, ...] = ()
    keywords: tuple[str, ...]
    examples: tuple[str, ...]


DIRECTIVE_KINDS: Final = (
    DirectiveKind(
        name="place_object",
        title="Place an object",
        description="Put a new object into the person's VR or AR scene, at a place of its own.",
        sentence="Place {target}.",
        target="The id the object shall have in the scene",
        parameters={
            "asset": shapes.build_asset_schema(
                "What it looks like: an id the client knows, "
                "or an address of a 3D model"
            ),
            "position": shapes.POSITION,
            "rotation": shapes.ROTATION,
            "scale": shapes.SCALE,
            "anchor": shapes.build_enum_schema("What holds it", "world", "floor", "wall", "table", "person"),
        },
        required=("asset", "position"),
        keywords=("place", "put", "scene", "object", "spawn", "vr", "ar"),
        examples=("Put a lamp on the table in front of me", "Place the engine model in the room"),
    ),
    DirectiveKind(
        name="move_object",
        title="Move an object",
        description="Move, turn or resize an object that is in the person's VR or AR scene already.",
        sentence="Move {target}.",
        target="The id of the object in the scene",
        parameters={
            "position": shapes.POSITION,
            "rotation": shapes.ROTATION,
            "scale": shapes.SCALE,
            "seconds": shapes.SECONDS,
        },
        keywords=("move", "turn", "rotate", "resize", "object", "scene", "vr", "ar"),
        examples=("Move the lamp half a metre to the left", "Turn the engine around"),
    ),
    DirectiveKind(
        name="highlight_object",
        title="Highlight an object",
        description="Draw the person's attention to an object in their VR or AR scene.",
        sentence="Highlight {target}.",
        target="The id of the object in the scene",
        parameters={
            "style": shapes.build_enum_schema("How", "outline", "glow", "pulse", "arrow"),
            "colour": shapes.build_colour_schema("In which colour"),
            "seconds": shapes.build_number_schema(0, shapes.MAX_TEXT_LENGTH, (
                "For how long; 0 until another "
                "is highlighted"
            )),
            "label": shapes.build_text_schema(200, "A few words beside it"),
        },
        keywords=("highlight", "point", "mark", "show", "where", "object", "scene"),
        examples=("Show me which valve it is", "Highlight the emergency exit"),
    ),
    DirectiveKind(
        name="show_panel",
        title="Show a panel",
        description="Show text on a panel in the person's VR or AR view, such as steps, a list or a warning.",
        sentence="Show the panel {target}.",
        target="The id of the panel; one with the same id is replaced",
        parameters={
            "text": shapes.build_text_schema(4000, "What it says; Markdown"),
            "title": shapes.build_text_schema(200, "Its heading"),
            "position": shapes.POSITION,
            "attach_to": shapes.build_id_schema(
                "The object it hangs beside; without "
                "it and a position: in view"
            ),
            "seconds": shapes.build_number_schema(
                0, shapes.MAX_TEXT_LENGTH, "For how long; 0 until it is closed"
            ),
        },
        required=("text",),
        keywords=("panel", "display", "text", "view", "instructions", "overlay"),
        examples=("Show the assembly steps in front of me", "Put a note beside the pump"),
    ),
    DirectiveKind(
        name="play_animation",
        title="Play an animation",
        description="Play an animation of an object in the person's VR or AR scene.",
        sentence="Play {animation} of {target}.",
        target="The id of the object in the scene",
        parameters={
            "animation": shapes.build_id_schema("Which of its animations"),
            "speed": shapes.build_number_schema(0.01, 100, "How many times as fast; 1 by default"),
            "repeat": shapes.build_integer_schema(1, 1000, "How often; 1 by default"),
        },
        required=("animation",),
        keywords=("animation", "animate", "play", "demonstrate", "object"),
        examples=("Show how the piston moves", "Let the robot wave"),
    ),
    DirectiveKind(
        name="set_environment",
        title="Set the environment",
        description="Change the surroundings of the person's VR scene: place, light, time of day.",
        sentence="Change the environment.",
        parameters={
            "skybox": shapes.build_asset_schema(
                "The surroundings: an id the client knows, "
                "or an address of a picture"
            ),
            "light": shapes.build_number_schema(0, 10, "How bright; 1 is daylight"),
            "colour": shapes.build_colour_schema("The colour of the light"),
            "time_of_day": shapes.build_pattern_schema(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]", "As HH:MM"),
            "seconds": shapes.SECONDS,
        },
        keywords=("environment", "surroundings", "light", "lighting", "night", "day", "sky", "scene"),
        examples=("Make it night", "Take me to a forest", "Dim the light"),
    ),
    DirectiveKind(
        name="navigate_to",
        title="Lead the person somewhere",
        description="Bring the person to a place in the VR scene, or show them the way there in AR.",
        sentence="Lead the person to {target}.",
        target="The id of the place or object",
        parameters={
            "manner": shapes.build_enum_schema(
                "How; the way is shown by default", "path", "teleport", "walk"
            ),
            "distance": shapes.build_number_schema(0, 1000, "How far in front of it to stop, in metres"),
        },
        keywords=("navigate", "go", "way", "lead", "teleport", "take me", "walk"),
        examples=("Take me to the control room", "Show me the way to the exit"),
    ),
    DirectiveKind(
        name="set_camera",
        title="Set the camera",
        description="Change the view of a scene watched from outside: where the camera stands and looks.",
        sentence="Set the camera.",
        parameters={
            "position": shapes.POSITION,
            "look_at": shapes.POSITION,
            "follow": shapes.build_id_schema("The object it follows"),
            "field_of_view": shapes.build_number_schema(1, 179, "In degrees"),
            "seconds": shapes.SECONDS,
        },
        keywords=("camera", "view", "zoom", "perspective", "look"),
        examples=("Zoom in on the engine", "Show the scene from above"),
    ),
)  # fmt: skip
