"""`user_collaboration`: a question to the person, or their yes or no to a plan.

A request on its way ends with the question and goes on with the answer; a client that can be asked (MCP
elicitation) is asked; any other hears what to ask. A yes is no leave for calls that need a grant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from fingerpost.builtin.kit import Caller, OwnTool, Question, Reply
from fingerpost.records import Effect, Json, JsonObject

NAME: Final = "user_collaboration"
LONGEST_QUESTION: Final = 4_000
LONGEST_OPTION: Final = 200
MOST_OPTIONS: Final = 20
LONGEST_ANSWER: Final = 20_000
SOMEBODY: Final = ("local", None)  # people without a name

DESCRIPTION: Final = (
    "Ask me, the person: ask puts a `question` to them, with `options` to choose from; approve has them say "
    "yes or no to a plan before it is done. For what only the person can know or decide, one thing at a "
    "time. Never ask for passwords. Calls that need an approval ask for it themselves."
)

_PROPERTIES: Final[dict[str, JsonObject]] = {
    "operation": {
        "type": "string",
        "enum": ["ask", "approve"],
        "description": "ask: a question; approve: yes or no",
    },
    "question": {
        "type": "string",
        "minLength": 1,
        "maxLength": LONGEST_QUESTION,
        "description": "What the person reads, complete in itself",
    },
    "options": {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": LONGEST_OPTION},
        "minItems": 2,
        "maxItems": MOST_OPTIONS,
        "uniqueItems": True,
        "description": "ask: the answers to choose from; they may still say something else",
    },
}
_COMMENT: Final[JsonObject] = {"type": "string", "title": "In your own words", "maxLength": LONGEST_ANSWER}


def collaboration_tool() -> OwnTool:
    return OwnTool(
        name=NAME,
        title="Ask the person",
        description=DESCRIPTION,
        run=_collaborate,
        effect=Effect.READ,
        properties=_PROPERTIES,
        required=("operation", "question"),
        knowledge={
            "operations": {"ask": Effect.READ, "approve": Effect.READ},
            "category": "collaboration",
            "typical_ms": 10,
            "timeout_ms": 600_000,  # a client's person may think about it
            "keywords": (
                "ask me", "check with me", "let me choose", "let me decide", "confirm with me", "my approval",
                "before you do",
            ),
            "weight": 3.0,
            "purpose": "Asks the person, and waits for what they say.",
            "when": (
                "something is missing that only the person knows",
                "there are several good ways and the person should choose",
                "the person wants to be asked before something is done",
            ),
            "when_not": (
                "you can find it out with another tool, or a sensible default will do",
                "the answer stands in the conversation already",
            ),
            "examples": ("Ask me which of the two files you should keep",),
        },
    )  # fmt: skip


async def _collaborate(arguments: JsonObject, caller: Caller) -> Reply | Question:
    question = str(arguments["question"]).strip()
    options = tuple(cast("Sequence[str]", arguments.get("options") or ()))
    approving = arguments["operation"] == "approve"
    if caller.declined:
        return Reply(f"{_who(caller)} would rather not say. Go on without, or say what you cannot do.")
    if caller.answer is not None:
        return Reply(_approved(caller, caller.answer) if approving else _said(caller, caller.answer))
    if not caller.can_be_asked:
        return Reply(_relayed(question, options, approving=approving))
    return Question(text=question, schema=_schema(options, approving=approving))


def _schema(options: Sequence[str], *, approving: bool) -> JsonObject:
    """A flat object, as elicitation wants it. Nobody has to choose: their own words will do, too."""
    if approving:
        first: JsonObject = {"type": "boolean", "title": "Yes?"}
        return {"type": "object", "properties": {"approved": first, "comment": _COMMENT}}
    if options:
        choice: JsonObject = {"type": "string", "title": "Your choice", "enum": list(options)}
        return {"type": "object", "properties": {"answer": choice, "comment": _COMMENT}}
    words: JsonObject = {"type": "string", "title": "Your answer", "maxLength": LONGEST_ANSWER}
    return {"type": "object", "properties": {"answer": words}, "required": ["answer"]}


def _said(caller: Caller, answer: JsonObject) -> str:
    chosen, comment = _text(answer.get("answer")), _text(answer.get("comment"))
    if chosen and comment:
        return f"{_who(caller)} answered: {chosen}\nand added: {comment}"
    if chosen:
        return f"{_who(caller)} answered: {chosen}"
    if comment:
        return f"{_who(caller)} chose none of the options and said: {comment}"
    return f"{_who(caller)} gave no answer."


def _approved(caller: Caller, answer: JsonObject) -> str:
    verdict, comment = answer.get("approved"), _text(answer.get("comment"))
    if verdict is True:
        told = f"{_who(caller)} said yes."
    elif verdict is False:
        told = f"{_who(caller)} said no. Do not do it."
    else:
        told = f"{_who(caller)} said neither yes nor no, so it is not approved."
    return f"{told} In their words: {comment}" if comment else told


def _relayed(question: str, options: Sequence[str], *, approving: bool) -> str:
    """For a caller whose person cannot be reached from here: they pass it on."""
    one_of = f" (one of: {', '.join(options)})" if options else " (yes or no)" if approving else ""
    return f"Ask the person: {question}{one_of}\nThen go on with what they say; nothing was decided yet."


def _who(caller: Caller) -> str:
    return "The person" if caller.user in SOMEBODY else str(caller.user)


def _text(value: Json) -> str:
    return value.strip()[:LONGEST_ANSWER] if isinstance(value, str) else ""
