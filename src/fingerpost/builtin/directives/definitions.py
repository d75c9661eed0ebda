"""The kinds of directives, and bounded JSON schemas for their content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject

MAX_DISTANCE_M: Final = 10_000.0  # metres
MAX_DURATION_S: Final = 3_600.0  # seconds
ID_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}"
# A reference: an id known to the client, or a URL. Never a script or a file of the client.
ASSET_PATTERN: Final = (
    r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,127}|(?:https|asset|fingerpost)://[^\s\\<>\"'`{}|^\x00-\x1f]{1,400})"
)


def build_pattern_schema(pattern: str, description: str) -> JsonObject:
    """Return a schema for text of this form. It matches to the very end: `$` alone would allow a trailing
    line break.
    """
    return {"type": "string", "pattern": rf"^{pattern}$(?![\s\S])", "description": description}


def build_number_schema(minimum: float, maximum: float, description: str) -> JsonObject:
    return {"type": "number", "minimum": minimum, "maximum": maximum, "description": description}


def build_integer_schema(minimum: int, maximum: int, description: str) -> JsonObject:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, "description": description}


def build_text_schema(max_length: int, description: str) -> JsonObject:
    return {"type": "string", "minLength": 1, "maxLength": max_length, "description": description}


def build_enum_schema(description: str, *values: str) -> JsonObject:
    return {"type": "string", "enum": list(values), "description": description}


def build_id_schema(description: str) -> JsonObject:
    return build_pattern_schema(ID_PATTERN, description)


def build_asset_schema(description: str) -> JsonObject:
    return build_pattern_schema(ASSET_PATTERN, description)


def build_colour_schema(description: str) -> JsonObject:
    return build_pattern_schema("#[0-9a-fA-F]{6}", f"{description}, as #rrggbb")


def build_vector_schema(
    description: str, *, minimum: float = -MAX_DISTANCE_M, maximum: float = MAX_DISTANCE_M
) -> JsonObject:
    axes: dict[str, Json] = {
        axis: {"type": "number", "minimum": minimum, "maximum": maximum} for axis in "xyz"
    }
    return {
        "type": "object",
        "properties": axes,
        "required": ["x", "y", "z"],
        "additionalProperties": False,
        "description": description,
    }


POSITION_SCHEMA: Final = build_vector_schema("Where, in metres: x to the right, y up, z towards the person")
ROTATION_SCHEMA: Final = build_vector_schema(
    "How it is turned, in degrees around each axis", minimum=-360, maximum=360
)
SCALE_SCHEMA: Final = build_number_schema(0.001, 1000, "How many times its own size; 1 by default")
SECONDS_SCHEMA: Final = build_number_schema(0, MAX_DURATION_S, "How long it takes; 0 at once")


@frozen
class DirectiveKind:
    """One kind of directive. `target` is its subject; empty for the whole scene."""

    name: str
    title: str
    description: str
    sentence: str  # a description that may contain {target} and the parameters
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
            "asset": build_asset_schema(
                "What it looks like: an id the client knows, "
                "or an address of a 3D model"
            ),
            "position": POSITION_SCHEMA,
            "rotation": ROTATION_SCHEMA,
            "scale": SCALE_SCHEMA,
            "anchor": build_enum_schema("What holds it", "world", "floor", "wall", "table", "person"),
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
            "position": POSITION_SCHEMA,
            "rotation": ROTATION_SCHEMA,
            "scale": SCALE_SCHEMA,
            "seconds": SECONDS_SCHEMA,
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
            "style": build_enum_schema("How", "outline", "glow", "pulse", "arrow"),
            "colour": build_colour_schema("In which colour"),
            "seconds": build_number_schema(0, MAX_DURATION_S, (
                "For how long; 0 until another "
                "is highlighted"
            )),
            "label": build_text_schema(200, "A few words beside it"),
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
            "text": build_text_schema(4000, "What it says; Markdown"),
            "title": build_text_schema(200, "Its heading"),
            "position": POSITION_SCHEMA,
            "attach_to": build_id_schema(
                "The object it hangs beside; without "
                "it and a position: in view"
            ),
            "seconds": build_number_schema(
                0, MAX_DURATION_S, "For how long; 0 until it is closed"
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
            "animation": build_id_schema("Which of its animations"),
            "speed": build_number_schema(0.01, 100, "How many times as fast; 1 by default"),
            "repeat": build_integer_schema(1, 1000, "How often; 1 by default"),
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
            "skybox": build_asset_schema(
                "The surroundings: an id the client knows, "
                "or an address of a picture"
            ),
            "light": build_number_schema(0, 10, "How bright; 1 is daylight"),
            "colour": build_colour_schema("The colour of the light"),
            "time_of_day": build_pattern_schema(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]", "As HH:MM"),
            "seconds": SECONDS_SCHEMA,
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
            "manner": build_enum_schema(
                "How; the way is shown by default", "path", "teleport", "walk"
            ),
            "distance": build_number_schema(0, 1000, "How far in front of it to stop, in metres"),
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
            "position": POSITION_SCHEMA,
            "look_at": POSITION_SCHEMA,
            "follow": build_id_schema("The object it follows"),
            "field_of_view": build_number_schema(1, 179, "In degrees"),
            "seconds": SECONDS_SCHEMA,
        },
        keywords=("camera", "view", "zoom", "perspective", "look"),
        examples=("Zoom in on the engine", "Show the scene from above"),
    ),
)  # fmt: skip
