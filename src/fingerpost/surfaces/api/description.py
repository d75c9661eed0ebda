"""What the API says of itself: an OpenAPI 3.1 document, made from the operations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from http import HTTPStatus
from typing import Any, Final, Literal, cast

from pydantic import TypeAdapter
from pydantic_core import to_json

from fingerpost import __version__
from fingerpost.surfaces.api.operation import ApiRequest, Operation, Reply
from fingerpost.surfaces.api.problems import MEDIA
from fingerpost.surfaces.api.shapes import given, taken

PATH: Final = "/api/openapi.json"
_REFERENCE: Final = "#/components/schemas/{model}"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")

Shape = dict[str, Any]

_PROBLEM: Final[Shape] = {
    "type": "object",
    "title": "Problem",
    "description": "What went wrong (RFC 9457). `hint`, where there is one, says what to do.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "hint": {"type": "string"},
        "error_id": {"type": "string", "description": "Where the log has it"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"where": {"type": "string"}, "problem": {"type": "string"}},
                "required": ["where", "problem"],
            },
        },
    },
    "required": ["type", "title", "status"],
}
_SECURITY: Final[Shape] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key, or a token of the issuer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "A key"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "fingerpost_session",
        "description": "Of the console. Everything but GET also needs X-CSRF-Token (`csrf` of /api/me).",
    },
}
# Every operation may answer so.
_ALWAYS: Final = (400, 403, 406, 429, 500, 503)


class Description:
    """The document, and the operation that gives it."""

    def __init__(self, operations: Iterable[Operation], *, address: str) -> None:
        itself = Operation(
            method="GET", path=PATH, name="describe", tag="session", right=None, public=True,
            summary="This description", returns=dict[str, Any], answer=self.answer,
        )  # fmt: skip
        self._itself = itself
        self._operations = (*operations, itself)
        self._address = address
        self._bytes: bytes | None = None

    def operations(self) -> tuple[Operation, ...]:
        return (self._itself,)

    async def answer(self, request: ApiRequest) -> Reply:
        if self._bytes is None:
            self._bytes = to_json(describe(self._operations, self._address))
        return Reply(body=self._bytes)


def describe(operations: Sequence[Operation], address: str) -> Shape:
    """The OpenAPI document of these operations, in their order."""
    schemas = _Schemas(operations)
    paths: dict[str, Shape] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fingerpost",
            "version": __version__,
            "description": "Requests and what became of them, asking, approvals, tools and servers.",
        },
        "servers": [{"url": address}],
        "security": [{name: []} for name in _SECURITY],
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": _SECURITY},
    }


class _Schemas:
    """The JSON schemas of all types, with one name for each: what is taken and what is given may differ."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        inputs: list[tuple[Any, Literal["validation"], TypeAdapter[Any]]] = []
        outputs: list[tuple[Any, Literal["serialization"], TypeAdapter[Any]]] = []
        for operation in operations:
            inputs.extend(
                (shape, "validation", taken(shape)) for shape in (operation.query, operation.body) if shape
            )
            if operation.returns is not None:
                shape = operation.returns
                outputs.append((_key(shape), "serialization", given(shape)))
        made, definitions = TypeAdapter.json_schemas([*inputs, *outputs], ref_template=_REFERENCE)
        self._made = cast("Mapping[tuple[Any, str], Shape]", made)
        found = cast("dict[str, Shape]", definitions.get("$defs", {}))
        self.components: dict[str, Shape] = {"Problem": _PROBLEM, **dict(sorted(found.items()))}

    def taken(self, shape: type[Any]) -> Shape:
        return self._made[shape, "validation"]

    def given(self, shape: Any) -> Shape:
        return self._made[_key(shape), "serialization"]

    def resolved(self, schema: Shape) -> Shape:
        """The schema itself, where only its name is given."""
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        return self.components[name] if name else schema


def _key(shape: Any) -> Any:
    return shape if isinstance(shape, type) else str(shape)


def _described(operation: Operation, schemas: _Schemas) -> Shape:
    parameters = [*_path_parameters(operation), *_query_parameters(operation, schemas)]
    described: Shape = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag or "other"],
    }
    if operation.right is not None:
        described["description"] = f"Needs the right `{operation.right}`."
    if operation.public or operation.opens:
        described["security"] = []
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        schema = schemas.taken(operation.body)
        required = bool(schemas.resolved(schema).get("required"))
        described["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    described["responses"] = _responses(operation, schemas)
    return described


def _path_parameters(operation: Operation) -> list[Shape]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _as_text({"type": "string", "minLength": 1})}
        for name in _PARAMETER.findall(operation.path)
    ]


def _query_parameters(operation: Operation, schemas: _Schemas) -> list[Shape]:
    if operation.query is None:
        return []
    whole = schemas.resolved(schemas.taken(operation.query))
    properties = cast("dict[str, Shape]", whole.get("properties", {}))
    required = cast("list[str]", whole.get("required", []))
    found: list[Shape] = []
    for field in fields(operation.query):
        schema = _present(properties[field.name])
        one: Shape = {"name": field.name, "in": "query", "required": field.name in required}
        if description := schema.pop("description", None):
            one["description"] = description
        found.append({**one, "schema": schema})
    return found


def _present(schema: Shape) -> Shape:
    """The schema of a value that is there: a parameter that is left out is what null would be."""
    schema = {name: value for name, value in schema.items() if name != "title"}
    if schema.get("default", 0) is None:
        del schema["default"]
    choices = [choice for choice in schema.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        del schema["anyOf"]
        schema = {**choices[0], **schema}
    if "items" in schema:
        schema["items"] = _as_text(schema["items"])
    return _as_text(schema)


def _as_text(schema: Shape) -> Shape:
    """No text in an address holds the character that is none: what we refuse is said."""
    if schema.get("type") != "string" or not schema.keys().isdisjoint({"enum", "const", "pattern", "format"}):
        return schema
    return {**schema, "pattern": "^[^\\u0000]*$"}


def _responses(operation: Operation, schemas: _Schemas) -> Shape:
    good: Shape = {"description": operation.summary}
    if operation.returns is not None:
        content: Shape = {operation.media: {"schema": schemas.given(operation.returns)}}
        content |= {media: {"schema": {"type": "string"}} for media in operation.also}
        good["content"] = content
    statuses = {*_ALWAYS, *operation.problems}
    if not operation.public:
        statuses.add(401)
    if operation.body is not None:
        statuses |= {408, 413, 415, 422}
    problems = {str(status): _problem(HTTPStatus(status).phrase) for status in sorted(statuses)}
    return {str(operation.status): good, **problems, "default": _problem("Something went wrong")}


def _problem(phrase: str) -> Shape:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": phrase, "content": {MEDIA: {"schema": schema}}}
