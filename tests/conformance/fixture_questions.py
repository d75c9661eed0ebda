"""Tools and a prompt that need an answer of the person or the model behind the client."""

from __future__ import annotations

from typing import Any, Final

import mcp_types as types
from mcp import MCPError

from tests.conformance.fixture_call import FixtureCall, Object
from tests.conformance.fixture_tools import Run, text, tool


def form(message: str, properties: Object, required: list[str] | None = None) -> Object:
    """A question to the person."""
    schema: Object = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": message, "requestedSchema": schema},
    }


def sample(words: str, max_tokens: int) -> Object:
    """A question to the model."""
    message = {"role": "user", "content": {"type": "text", "text": words}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": max_tokens}}


ROOTS: Final[Object] = {"method": "roots/list", "params": {}}
NAME: Final = form("What is your name?", {"name": {"type": "string"}}, ["name"])
CONFIRM: Final = form("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])

DEFAULTS: Final[Object] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}


def _build_titled_options(noun: str) -> list[Object]:
    return [
        {"const": f"value{number}", "title": f"{ordinal} {noun}"}
        for number, ordinal in enumerate(("First", "Second", "Third"), start=1)
    ]


OPTIONS: Final = ["option1", "option2", "option3"]
ENUMS: Final[Object] = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": _build_titled_options("Option")},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": _build_titled_options("Choice")}},
}


def _content(answer: Any) -> Object:
    """What a person filled in; nothing when they declined."""
    return answer.get("content") or {}


def _describe_answer(answer: Object) -> str:
    return f"action={answer['action']}, content={_content(answer)}"


async def sampling(call: FixtureCall) -> Object:
    answers = await call.ask({"reply": sample(call.arguments["prompt"], 100)})
    return text(f"LLM response: {answers['reply']['content']['text']}")


async def elicitation(call: FixtureCall) -> Object:
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    answers = await call.ask({"user": form(call.arguments["message"], fields, list(fields))})
    return text(f"User response: {_describe_answer(answers['user'])}")


async def defaults(call: FixtureCall) -> Object:
    answers = await call.ask({"form": form("Please review the defaults", DEFAULTS)})
    return text(f"Elicitation completed: {_describe_answer(answers['form'])}")


async def enums(call: FixtureCall) -> Object:
    answers = await call.ask({"form": form("Please choose", ENUMS)})
    return text(f"Elicitation completed: {_describe_answer(answers['form'])}")


async def greet(call: FixtureCall) -> Object:
    answers = await call.ask({"user_name": NAME})
    return text(f"Hello, {_content(answers['user_name']).get('name', 'stranger')}!")


async def capital(call: FixtureCall) -> Object:
    answers = await call.ask({"capital_question": sample("What is the capital of France?", 100)})
    return text(answers["capital_question"]["content"]["text"])


async def roots(call: FixtureCall) -> Object:
    answers = await call.ask({"client_roots": ROOTS})
    return text(", ".join(root["uri"] for root in answers["client_roots"]["roots"]))


async def with_state(call: FixtureCall) -> Object:
    """Needs its own state back, unchanged."""
    state = call.state()
    await call.ask({"confirm": CONFIRM}, {"tool": call.params["name"]})
    if call.modern and (state is None or state["tool"] != call.params["name"]):
        raise MCPError(types.INVALID_PARAMS, "requestState of this tool is missing")
    return text("state-ok")


async def several(call: FixtureCall) -> Object:
    questions = {"user_name": NAME, "greeting": sample("Generate a greeting", 50), "client_roots": ROOTS}
    answers = await call.ask(questions, {"tool": call.params["name"]})
    name = _content(answers["user_name"]).get("name")
    return text(f"{answers['greeting']['content']['text']} {name}, {len(answers['client_roots']['roots'])}")


async def two_rounds(call: FixtureCall) -> Object:
    state = call.state() or {}
    name = state.get("name")
    if name is None:
        question = form("Step 1: What is your name?", {"name": {"type": "string"}}, ["name"])
        answers = await call.ask({"step1": question}, {"step": 1})
        name = _content(answers["step1"]).get("name", "stranger")
    question = form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])
    answers = await call.ask({"step2": question}, {"step": 2, "name": name})
    return text(f"{name} likes {_content(answers['step2']).get('color')}")


async def by_capabilities(call: FixtureCall) -> Object:
    """Asks only what this client can answer."""
    questions = {
        key: question
        for key, question, capability in (
            ("person", NAME, "elicitation"),
            ("model", sample("Say hello", 20), "sampling"),
        )
        if call.can(capability)
    }
    answers = await call.ask(questions)
    return text(f"Answered: {', '.join(sorted(answers))}")


async def contextual_prompt(call: FixtureCall) -> Object:
    """The same for a prompt."""
    question = form("What context should the prompt use?", {"context": {"type": "string"}}, ["context"])
    answers = await call.ask({"user_context": question})
    words = f"Use this context: {_content(answers['user_context']).get('context')}"
    return {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]}


ASKING_TOOLS: Final[tuple[tuple[Object, Run], ...]] = (
    tool("test_sampling", "Asks the client's model", sampling, {"prompt": {"type": "string"}}),
    tool("test_elicitation", "Asks the person", elicitation, {"message": {"type": "string"}}),
    tool("test_elicitation_sep1034_defaults", "Asks with a default in every field", defaults),
    tool("test_elicitation_sep1330_enums", "Asks with every kind of choice", enums),
    tool("test_streaming_elicitation", "Asks the person for their name", greet),
    tool("test_input_required_result_elicitation", "Asks the person for their name", greet),
    tool("test_input_required_result_sampling", "Asks the model for a capital", capital),
    tool("test_input_required_result_list_roots", "Asks for the client's roots", roots),
    tool("test_input_required_result_request_state", "Asks, with state of its own", with_state),
    tool("test_input_required_result_tampered_state", "Asks, and refuses changed state", with_state),
    tool("test_input_required_result_multiple_inputs", "Asks three things at once", several),
    tool("test_input_required_result_multi_round", "Asks twice", two_rounds),
    tool("test_input_required_result_capabilities", "Asks what the client can answer", by_capabilities),
)
