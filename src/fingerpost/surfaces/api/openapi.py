"""The OpenAPI 3.1 document, generated from the operations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from http import HTTPStatus
from typing import Any, Final, Literal, cast

from pydantic import TypeAdapter
from pydantic_core import to_json

from fingerpost import __version__
from fingerpost.surfaces.api.operation import (
    PROBLEM_MEDIA_TYPE,
    ApiOperation,
    ApiRequest,
    ApiResponse,
    OperationGroup,
    build_input_adapter,
    build_output_adapter,
    declare_operation,
)

OPENAPI_PATH: Final = "/api/openapi.json"
_REFERENCE_TEMPLATE: Final = "#/components/schemas/{model}"
_PARAMETER_PATTERN: Final = re.compile(r"\{(\w+)\}")

SchemaDict = dict[str, Any]

_PROBLEM_SCHEMA: Final[SchemaDict] = {
    "type": "object",
    "title": "Problem",
    "description": "What went wrong (RFC 9457). `hint`, where there is one, says what to do.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "hint": {"type": "string"},
        "error_id": {"type": "string", "description": "Id of the log entry"},
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
_SECURITY_SCHEMES: Final[SchemaDict] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key, or a token of the issuer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "A key"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "fingerpost_session",
        "description": "Of the console. Everything but GET also needs X-CSRF-Token (`csrf` of /api/me).",
    },
}
# Every operation may return these.
_COMMON_STATUSES: Final = (400, 403, 406, 429, 500, 503)


class ApiDescription(OperationGroup):
    """The operation that serves the OpenAPI document."""

    tag = "session"

    def __init__(self, operations: Iterable[ApiOperation], *, address: str) -> None:
        self._operations = (*operations, *self.build_operations())
        self._address = address
        self._bytes: bytes | None = None

    @declare_operation("GET", OPENAPI_PATH, public=True, returns=dict[str, Any], right=None)
    async def describe(self, request: ApiRequest) -> ApiResponse:
        """This description."""
        if self._bytes is None:
            self._bytes = to_json(build_openapi(self._operations, self._address))
        return ApiResponse(body=self._bytes)


def build_openapi(operations: Sequence[ApiOperation], address: str) -> SchemaDict:
    """Build the OpenAPI document of these operations, in their order."""
    schemas = _SchemaIndex(operations)
    paths: dict[str, SchemaDict] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe_operation(
            operation, schemas
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fingerpost",
            "version": __version__,
            "description": "Requests and their results, asking, approvals, tools and servers.",
        },
        "servers": [{"url": address}],
        "security": [{name: []} for name in _SECURITY_SCHEMES],
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": _SECURITY_SCHEMES},
    }


class _SchemaIndex:
    """The JSON schemas of all types, each with a unique name. Input and output schemas may differ."""

    def __init__(self, operations: Iterable[ApiOperation]) -> None:
        inputs: list[tuple[Any, Literal["validation"], TypeAdapter[Any]]] = []
        outputs: list[tuple[Any, Literal["serialization"], TypeAdapter[Any]]] = []
        for operation in operations:
            inputs.extend(
                (shape, "validation", build_input_adapter(shape))
                for shape in (operation.query, operation.body)
                if shape
            )
            if operation.returns is not None:
                shape = operation.returns
                outputs.append((_build_schema_key(shape), "serialization", build_output_adapter(shape)))
        schemas, definitions = TypeAdapter.json_schemas([*inputs, *outputs], ref_template=_REFERENCE_TEMPLATE)
        self._schemas = cast("Mapping[tuple[Any, str], SchemaDict]", schemas)
        found = cast("dict[str, SchemaDict]", definitions.get("$defs", {}))
        self.components: dict[str, SchemaDict] = {"Problem": _PROBLEM_SCHEMA, **dict(sorted(found.items()))}

    def get_input_schema(self, shape: type[Any]) -> SchemaDict:
        return self._schemas[shape, "validation"]

    def get_output_schema(self, shape: Any) -> SchemaDict:
        return self._schemas[_build_schema_key(shape), "serialization"]

    def resolve_reference(self, schema: SchemaDict) -> SchemaDict:
        """Return the schema that a reference points to."""
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        return self.components[name] if name else schema


def _build_schema_key(shape: Any) -> Any:
    return shape if isinstance(shape, type) else str(shape)


def _describe_operation(operation: ApiOperation, schemas: _SchemaIndex) -> SchemaDict:
    text = _forbid_nul({"type": "string", "minLength": 1})
    names = _PARAMETER_PATTERN.findall(operation.path)
    in_path = [{"name": name, "in": "path", "required": True, "schema": text} for name in names]
    parameters = [*in_path, *_describe_query_parameters(operation, schemas)]
    described: SchemaDict = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag or "other"],
    }
    if operation.right is not None:
        described["description"] = f"Needs the right `{operation.right}`."
    if operation.public or operation.is_sign_in:
        described["security"] = []
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        schema = schemas.get_input_schema(operation.body)
        required = bool(schemas.resolve_reference(schema).get("required"))
        described["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    described["responses"] = _describe_responses(operation, schemas)
    return described


def _describe_query_parameters(operation: ApiOperation, schemas: _SchemaIndex) -> list[SchemaDict]:
    if operation.query is None:
        return []
    whole = schemas.resolve_reference(schemas.get_input_schema(operation.query))
    properties = cast("dict[str, SchemaDict]", whole.get("properties", {}))
    required = cast("list[str]", whole.get("required", []))
    found: list[SchemaDict] = []
    for field in fields(operation.query):
        schema = _drop_null(properties[field.name])
        one: SchemaDict = {"name": field.name, "in": "query", "required": field.name in required}
        if description := schema.pop("description", None):
            one["description"] = description
        found.append({**one, "schema": schema})
    return found


def _drop_null(schema: SchemaDict) -> SchemaDict:
    """Remove null from the schema of a parameter. A missing parameter means null."""
    schema = {name: value for name, value in schema.items() if name != "title"}
    if schema.get("default", 0) is None:
        del schema["default"]
    choices = [choice for choice in schema.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        del schema["anyOf"]
        schema = {**choices[0], **schema}
    if "items" in schema:
        schema["items"] = _forbid_nul(schema["items"])
    return _forbid_nul(schema)


def _forbid_nul(schema: SchemaDict) -> SchemaDict:
    """Add a pattern without NUL, which the API rejects in paths and queries."""
    if schema.get("type") != "string" or not schema.keys().isdisjoint({"enum", "const", "pattern", "format"}):
        return schema
    return {**schema, "pattern": "^[^\\u0000]*$"}


def _describe_responses(operation: ApiOperation, schemas: _SchemaIndex) -> SchemaDict:
    success: SchemaDict = {"description": operation.summary}
    if operation.returns is not None:
        content: SchemaDict = {operation.media: {"schema": schemas.get_output_schema(operation.returns)}}
        content |= {media: {"schema": {"type": "string"}} for media in operation.other_media}
        success["content"] = content
    statuses = {*_COMMON_STATUSES, *operation.problems}
    if not operation.public:
        statuses.add(401)
    if operation.body is not None:
        statuses |= {408, 413, 415, 422}
    problems = {str(status): _describe_problem(HTTPStatus(status).phrase) for status in sorted(statuses)}
    return {str(operation.status): success, **problems, "default": _describe_problem("Something went wrong")}


def _describe_problem(phrase: str) -> SchemaDict:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": phrase, "content": {PROBLEM_MEDIA_TYPE: {"schema": schema}}}
