"""`user_collaboration`: asks the person a question, or for approval of a plan, on any surface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from fingerpost.builtin.toolkit import (
    BuiltinHost,
    BuiltinServer,
    BuiltinTool,
    ToolCaller,
    ToolDefinitions,
    ToolQuestion,
    ToolRefused,
    ToolReply,
)
from fingerpost.call.approvals import CallApprovals
from fingerpost.records import Decision, Effect, Json, JsonObject, ParameterFault, Pending

DEFINITIONS: Final = ToolDefinitions.load("fingerpost.builtin", "collaboration.toml")
COLLABORATION_TOOL: Final = "user_collaboration"
MAX_ANSWER_LENGTH: Final = 20_000
UNNAMED_CALLERS: Final = ("local", None)  # callers without a name of their own

_TEXT_SCHEMA: Final[JsonObject] = {"type": "string", "maxLength": MAX_ANSWER_LENGTH}
_COMMENT_SCHEMA: Final[JsonObject] = {**_TEXT_SCHEMA, "title": "In your own words"}


def build_collaboration_tool(host: BuiltinHost) -> BuiltinTool:
    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply | ToolQuestion:
        request = arguments.get("request")
        if isinstance(request, str):
            return await _ask_about_call(host.required_router.calls.approvals, request, caller)
        return await _ask_person(arguments, caller)

    return DEFINITIONS.build_tool(
        COLLABORATION_TOOL,
        run,
        Effect.READ,
        check=_check_arguments,
        knowledge={"operations": {"ask": "read", "approve": "read"}},
    )


def _check_arguments(arguments: JsonObject) -> None:
    approving, request = arguments["operation"] == "approve", arguments.get("request")
    if request is not None and not approving:
        hint = "Use the operation approve, or leave it out."
        raise ToolRefused("`request` names a call to approve.", hint=hint, parameter="request")
    if request is None and not str(arguments.get("question") or "").strip():
        message = "There is no `question`."
        hint = "Say what the person shall read, complete in itself."
        raise ToolRefused(message, hint=hint, parameter="question", fault=ParameterFault.MISSING)


async def _ask_about_call(approvals: CallApprovals, request: str, caller: ToolCaller) -> ToolReply:
    """Ask the person about a pending call, or return the decision. Nothing is approved here."""
    pending = await approvals.get(request)
    if pending is None:
        waiting = [one for one in await approvals.list_waiting() if request in (one.operation, one.tool)]
        theirs = [one for one in waiting if _is_callers_own(one, caller)]
        pending = theirs[-1] if theirs else None
    if pending is None or not _is_callers_own(pending, caller):
        message = f"No call of yours waits for approval under {request!r:.120}."
        hint = "Give the id (apr_…) or the authorizationKey that the call came back with."
        raise ToolRefused(message, hint=hint, parameter="request")
    if pending.decision is Decision.WAITING:
        return ToolReply(f"{pending.tool} waits for the person's decision.", awaits=pending.pending_id)
    by = pending.decided_by or "The person"
    why = f": {pending.decision_reason}" if pending.decision_reason else ""
    if pending.decision is Decision.APPROVED:
        return ToolReply(f"{by} approved {pending.tool}{why}. Make the same call again: it runs once.")
    if pending.decision is Decision.EXPIRED:
        late = f"No decision about {pending.tool} was made in time."
        return ToolReply(f"{late} Make the call again to ask anew.")
    return ToolReply(f"{by} said no to {pending.tool}{why}. Do not do it.")


def _is_callers_own(pending: Pending, caller: ToolCaller) -> bool:
    """Return whether the pending call belongs to this caller, and to this conversation if it has one."""
    same = pending.conversation in (None, caller.conversation) or pending.asker is not None
    return pending.caller == caller.user and same


async def _ask_person(arguments: JsonObject, caller: ToolCaller) -> ToolReply | ToolQuestion:
    question = str(arguments["question"]).strip()
    options = tuple(cast("Sequence[str]", arguments.get("options") or ()))
    approving = arguments["operation"] == "approve"
    if caller.declined:
        declined = f"{_get_person_name(caller)} would rather not say."
        return ToolReply(f"{declined} Go on without, or say what you cannot do.")
    if caller.answer is not None:
        return ToolReply((_format_approval if approving else _format_answer)(caller, caller.answer))
    if not caller.can_be_asked:
        one_of = f" (one of: {', '.join(options)})" if options else " (yes or no)" if approving else ""
        after = "Then go on with what they say; nothing was decided yet."
        return ToolReply(f"Ask the person: {question}{one_of}\n{after}")
    return ToolQuestion(text=question, schema=_build_schema(options, approving=approving))


def _build_schema(options: Sequence[str], *, approving: bool) -> JsonObject:
    """Return a flat object schema, as elicitation requires. A comment is possible in place of a choice."""
    if approving:
        first: JsonObject = {"type": "boolean", "title": "Yes?"}
        return {"type": "object", "properties": {"approved": first, "comment": _COMMENT_SCHEMA}}
    if options:
        choice: JsonObject = {"type": "string", "title": "Your choice", "enum": list(options)}
        return {"type": "object", "properties": {"answer": choice, "comment": _COMMENT_SCHEMA}}
    words: JsonObject = {**_TEXT_SCHEMA, "title": "Your answer"}
    return {"type": "object", "properties": {"answer": words}, "required": ["answer"]}


def _format_answer(caller: ToolCaller, answer: JsonObject) -> str:
    chosen, comment = _get_text(answer.get("answer")), _get_text(answer.get("comment"))
    name = _get_person_name(caller)
    if chosen:
        return f"{name} answered: {chosen}" + (f"\nand added: {comment}" if comment else "")
    return f"{name} chose none of the options and said: {comment}" if comment else f"{name} gave no answer."


def _format_approval(caller: ToolCaller, answer: JsonObject) -> str:
    verdict, comment = answer.get("approved"), _get_text(answer.get("comment"))
    said = "said neither yes nor no, so it is not approved."
    if isinstance(verdict, bool):
        said = "said yes." if verdict else "said no. Do not do it."
    return f"{_get_person_name(caller)} {said}" + (f" In their words: {comment}" if comment else "")


def _get_person_name(caller: ToolCaller) -> str:
    return "The person" if caller.user in UNNAMED_CALLERS else str(caller.user)


def _get_text(value: Json) -> str:
    return value.strip()[:MAX_ANSWER_LENGTH] if isinstance(value, str) else ""


def make(host: BuiltinHost) -> BuiltinServer:
    """Create the server, not yet open."""
    return BuiltinServer(
        "collaboration",
        (build_collaboration_tool(host),),
        instructions=DEFINITIONS.instructions,
        get_context=host.get_context,
    )
