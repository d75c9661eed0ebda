"""Resources, templates and prompts of the fixture."""

from __future__ import annotations

import json
import re
from typing import Final

import mcp_types as types
from mcp import MCPError

from tests.conformance.fixture_call import FixtureCall, Object
from tests.conformance.fixture_questions import contextual_prompt
from tests.conformance.fixture_tools import PNG, Run, embed_resource

TEMPLATE: Final = re.compile(r"test://template/(?P<id>[^/]+)/data")

CONTENTS: Final[dict[str, Object]] = {
    "test://static-text": {
        "mimeType": "text/plain",
        "text": "This is the content of the static text resource.",
    },
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "This resource may change."},
}

RESOURCES: Final[list[Object]] = [
    {
        "uri": uri,
        "name": uri.removeprefix("test://"),
        "description": f"The resource {uri}",
        "mimeType": content["mimeType"],
    }
    for uri, content in CONTENTS.items()
]

TEMPLATES: Final[list[Object]] = [
    {
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "description": "Data of one id",
        "mimeType": "application/json",
    }
]


def read(uri: str) -> Object:
    """The contents of a resource, listed or made from the template."""
    if (content := CONTENTS.get(uri)) is not None:
        return {"contents": [{"uri": uri, **content}]}
    if (match := TEMPLATE.fullmatch(uri)) is not None:
        data = {"id": match["id"], "templateTest": True, "data": f"Data for ID: {match['id']}"}
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]}
    raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})


def _message(content: Object) -> Object:
    return {"role": "user", "content": content}


async def simple(call: FixtureCall) -> Object:
    return {"messages": [_message({"type": "text", "text": "This is a simple prompt for testing."})]}


async def with_arguments(call: FixtureCall) -> Object:
    first, second = call.arguments["arg1"], call.arguments["arg2"]
    words = f"Prompt with arguments: arg1='{first}', arg2='{second}'"
    return {"messages": [_message({"type": "text", "text": words})]}


async def with_resource(call: FixtureCall) -> Object:
    uri = call.arguments["resourceUri"]
    content = embed_resource(uri, "text/plain", "Embedded resource content for testing.")
    request: Object = {"type": "text", "text": "Please process the embedded resource above."}
    return {"messages": [_message(content), _message(request)]}


async def with_image(call: FixtureCall) -> Object:
    picture: Object = {"type": "image", "data": PNG, "mimeType": "image/png"}
    request: Object = {"type": "text", "text": "Please analyze the image above."}
    return {"messages": [_message(picture), _message(request)]}


def prompt(name: str, description: str, run: Run, *arguments: str) -> tuple[Object, Run]:
    """A definition, and what runs when it is fetched."""
    definition: Object = {"name": name, "description": description}
    if arguments:
        definition["arguments"] = [
            {"name": argument, "description": f"The {argument}", "required": True} for argument in arguments
        ]
    return definition, run


PROMPTS: Final = (
    prompt("test_simple_prompt", "A prompt without arguments", simple),
    prompt("test_prompt_with_arguments", "A prompt with two arguments", with_arguments, "arg1", "arg2"),
    prompt("test_prompt_with_embedded_resource", "A prompt with a resource", with_resource, "resourceUri"),
    prompt("test_prompt_with_image", "A prompt with an image", with_image),
    prompt("test_input_required_result_prompt", "A prompt that asks for its context", contextual_prompt),
)


def complete(value: str) -> Object:
    """Suggestions for any argument."""
    words = [word for word in ("paris", "park", "party", "test", "testing") if word.startswith(value)]
    return {"completion": {"values": words, "total": len(words), "hasMore": False}}
