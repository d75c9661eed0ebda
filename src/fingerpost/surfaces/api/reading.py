"""Queries and bodies, checked against the operation's types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final, get_origin, get_type_hints
from urllib.parse import parse_qsl

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from fingerpost.records import JsonObject
from fingerpost.records.json import check_json
from fingerpost.surfaces.api.operation import ApiProblem
from fingerpost.surfaces.api.shapes import build_input_adapter

MAX_PARAMETERS: Final = 100
MAX_ERRORS: Final = 20
_MAX_VALUE_LENGTH: Final = 200


def parse_query(shape: type[Any] | None, raw: bytes) -> Any:
    """An instance of `shape`, or None where the operation takes no query. Raises `ApiProblem`."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_PARAMETERS, errors="strict"
        )
    except ValueError:
        detail = "it is no query we can read: too long, or not UTF-8"
        raise _build_query_problem(detail) from None
    known = () if shape is None else tuple(field.name for field in fields(shape))
    unknown = sorted({name for name, _ in pairs} - set(known))
    if unknown:
        names = ", ".join(known) or "none"
        raise _build_query_problem(
            f"{unknown[0][:_MAX_VALUE_LENGTH]!r} is no parameter here; those are: {names}"
        )
    if any("\0" in value for _, value in pairs):
        detail = "it holds a character that is none"
        raise _build_query_problem(detail)
    return None if shape is None else _validate_values(shape, _collect_values(shape, pairs))


def _collect_values(shape: type[Any], pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The values by name. Where a list is taken, a name may come more than once."""
    hints = get_type_hints(shape)
    values: dict[str, Any] = {}
    for name, value in pairs:
        if get_origin(hints[name]) in (tuple, list):
            values.setdefault(name, []).append(value)
        elif name in values:
            raise _build_query_problem(f"{name} came more than once")
        else:
            values[name] = value
    return values


def _validate_values(shape: type[Any], values: dict[str, Any]) -> Any:
    try:
        return build_input_adapter(shape).validate_python(values)
    except ValidationError as error:
        detail = "not every parameter is what it should be"
        raise _build_query_problem(detail, _format_errors(error)) from None


def _build_query_problem(detail: str, errors: tuple[JsonObject, ...] = ()) -> ApiProblem:
    more = {"errors": errors} if errors else {}
    return ApiProblem(400, "The query is not right", _format_detail(detail, errors), **more)


def parse_json(shape: type[Any], body: bytes) -> Any:
    """An instance of `shape`. No body at all is an empty object. Raises `ApiProblem`."""
    body = body if body.strip() else b"{}"
    try:
        value: object = from_json(body, allow_inf_nan=False)
    except ValueError:
        raise ApiProblem(400, "The body is not right", "This is not valid JSON in UTF-8.") from None
    if (reason := check_json(value)) is not None:
        raise ApiProblem(400, "The body is not right", f"The JSON {reason}.")
    try:
        return build_input_adapter(shape).validate_json(body, strict=True)
    except ValidationError as error:
        errors = _format_errors(error)
        detail = _format_detail("not every field is what it should be", errors)
        raise ApiProblem(422, "The body is not right", detail, errors=errors) from None


def _format_errors(error: ValidationError) -> tuple[JsonObject, ...]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return tuple(_format_error(one) for one in found[:MAX_ERRORS])


def _format_error(one: ErrorDetails) -> JsonObject:
    where = ".".join(str(step) for step in one["loc"])[:_MAX_VALUE_LENGTH]
    if one["type"] == "unexpected_keyword_argument":
        return {"where": where, "problem": "There is no such field."}
    return {"where": where, "problem": one["msg"]}


def _format_detail(detail: str, errors: tuple[JsonObject, ...]) -> str:
    said = f"{detail[:1].upper()}{detail[1:]}"
    if errors:
        said += f": {errors[0]['where'] or 'all of it'}: {errors[0]['problem']}"
    return said if said.endswith(".") else f"{said}."
