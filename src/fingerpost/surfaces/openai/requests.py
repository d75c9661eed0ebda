"""One request from its parsed body to its answer, and the state of a chat between its requests."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import field, replace
from typing import Final, Protocol

import anyio

from fingerpost.errors import FingerpostError
from fingerpost.events import AttemptStarted, ModelAnswered, PacketReceived
from fingerpost.frozen import frozen
from fingerpost.records import (
    CallContext,
    CallerAuthorization,
    Decision,
    JsonObject,
    Message,
    Mode,
    Pending,
    Principal,
    RouteOutcome,
    create_id,
)
from fingerpost.records.codec import from_json, to_json
from fingerpost.router import AnswerPiece, Route, RouteOptions, Router
from fingerpost.router.route import StreamItem
from fingerpost.router.router import FIRST_CONNECT_TIMEOUT_S
from fingerpost.store import Store
from fingerpost.surfaces.http.access import AccessScope, build_conversation_id
from fingerpost.surfaces.http.approvals import build_approval_url, wait_for_decision
from fingerpost.surfaces.openai.errors import CompletionError, build_error
from fingerpost.surfaces.openai.messages import ChatConversation, ChatRequest
from fingerpost.surfaces.openai.options import RequestOptions

HIDDEN_CACHE: Final = "completions.hidden"
HIDDEN_TTL_S: Final = 24 * 3600.0
MAX_HIDDEN_IN_MEMORY: Final = 500
MAX_HIDDEN_BYTES: Final = 1024 * 1024
MAX_RESTORED: Final = 200  # newest messages with calls that are looked up per request


@frozen
class HiddenMessageList:
    """Messages in order, for storage."""

    messages: tuple[Message, ...]


class HiddenMessages:
    """Hidden messages by the ids of the calls that followed them, for each caller and conversation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recent: OrderedDict[str, tuple[Message, ...]] = OrderedDict()

    async def remember(
        self, caller_key: str, calls: Iterable[JsonObject], messages: tuple[Message, ...]
    ) -> None:
        """Store the messages before these calls. They survive a restart."""
        key = _build_hidden_key(caller_key, calls)
        self._recent[key] = messages
        self._recent.move_to_end(key)
        if len(self._recent) > MAX_HIDDEN_IN_MEMORY:
            self._recent.popitem(last=False)
        value = to_json(HiddenMessageList(messages=messages))
        if len(value) <= MAX_HIDDEN_BYTES:
            await self._store.cache.put(HIDDEN_CACHE, key, value, ttl=HIDDEN_TTL_S)

    async def restore_messages(self, caller_key: str, since: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the messages with the hidden ones inserted.

        If a caller repeats a call, its hidden messages are inserted once, before the last occurrence.
        """
        calling = [at for at, message in enumerate(since) if message.tool_calls][-MAX_RESTORED:]
        places = {_build_hidden_key(caller_key, since[at].tool_calls): at for at in calling}
        kept = {at: await self._read_messages(key) for key, at in places.items()}
        whole: list[Message] = []
        for at, message in enumerate(since):
            whole += kept.get(at, ())
            whole.append(message)
        return tuple(whole)

    async def _read_messages(self, key: str) -> tuple[Message, ...]:
        if (recent := self._recent.get(key)) is not None:
            return recent
        value = await self._store.cache.get(HIDDEN_CACHE, key)
        return () if value is None else from_json(HiddenMessageList, value).messages


def _build_hidden_key(caller_key: str, calls: Iterable[JsonObject]) -> str:
    ids = sorted(str(call.get("id", "")) for call in calls)
    return hashlib.sha256(json.dumps([caller_key, *ids]).encode()).hexdigest()


CHATS_CACHE: Final = "completions.chats"
CHATS_TTL_S: Final = 24 * 3600.0
MAX_CHATS_IN_MEMORY: Final = 5000
_OPEN_STATE: Final = "open"  # waits for its next request
_CONTINUED_STATE: Final = "taken"  # continued by the request whose hash is stored with it
_AMBIGUOUS_STATE: Final = "unclear"  # several chats with the same content; their number and ids are stored
MAX_ALIKE: Final = 8  # ids of chats with the same content


class ChatIndex:
    """Conversation ids by message content, for each caller."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # By hash: state, id or number, request or ids.
        self._known: OrderedDict[str, tuple[str, str, str]] = OrderedDict()

    async def find_conversation(
        self, caller_key: str, messages: Sequence[Message]
    ) -> tuple[str, tuple[str, ...]]:
        """Return the conversation that these messages continue, or a new id if it is unknown.

        With a new id, also the conversations from which these messages may go on in another way.
        """
        answers = [at for at, message in enumerate(messages) if message.role == "assistant"]
        if not answers:
            return create_id("conv"), ()
        key, request = (
            _hash_messages(caller_key, messages[: answers[-1] + 1]),
            _hash_messages("", messages[answers[-1] + 1 :]),
        )
        state, value, taken_by = await self._read_entry(key)
        if state == _OPEN_STATE or (state == _CONTINUED_STATE and taken_by == request):
            self._write_entry(key, (_CONTINUED_STATE, value, request))
            return value, ()
        if state == _AMBIGUOUS_STATE:
            self._write_entry(key, (_AMBIGUOUS_STATE, str(max(0, int(value) - 1)), taken_by))
            return create_id("conv"), tuple(taken_by.split())
        return create_id("conv"), (value,) if state == _CONTINUED_STATE else ()

    async def remember(
        self, caller_key: str, messages: Sequence[Message], conversation: str, *, durable: bool
    ) -> None:
        """Assign these messages, the last of which is our answer, to the conversation.

        `durable`: keep this after a restart.
        """
        key = _hash_messages(caller_key, messages)
        state, value, alike = await self._read_entry(key)
        made = (_OPEN_STATE, conversation, "")
        if state == _AMBIGUOUS_STATE and value != "0":
            chats = " ".join((*alike.split()[-MAX_ALIKE + 1 :], conversation))
            made = (_AMBIGUOUS_STATE, str(int(value) + 1), chats)
        elif state == _OPEN_STATE and value != conversation:
            made = (_AMBIGUOUS_STATE, "2", f"{value} {conversation}")
        self._write_entry(key, made)
        if durable:
            await self._store.cache.put(CHATS_CACHE, key, json.dumps(made).encode(), ttl=CHATS_TTL_S)

    async def _read_entry(self, key: str) -> tuple[str, str, str]:
        if (known := self._known.get(key)) is not None:
            return known
        stored = await self._store.cache.get(CHATS_CACHE, key)
        if not stored:
            return "", "", ""
        state, value, request = json.loads(stored)
        return str(state), str(value), str(request)

    def _write_entry(self, key: str, known: tuple[str, str, str]) -> None:
        self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > MAX_CHATS_IN_MEMORY:
            self._known.popitem(last=False)


def _hash_messages(caller_key: str, messages: Sequence[Message]) -> str:
    """Return a hash of the messages. Text next to tool calls is ignored, because clients omit it."""
    digest = hashlib.sha256(hashlib.sha256(caller_key.encode("utf-8", "surrogatepass")).digest())
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        calls = [str(call.get("id", "")) for call in message.tool_calls]
        text = "" if calls else message.text.strip()
        encoded = json.dumps([message.role, text, calls, message.tool_call_id, message.parts], default=dict)
        digest.update(hashlib.sha256(encoded.encode()).digest())
    return digest.hexdigest()


AWAITED_CACHE: Final = "completions.awaited"
AWAITED_TTL_S: Final = 24 * 3600.0


class AwaitedApprovals:
    """The call that each conversation waits for, by caller and conversation. Survives a restart."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get_pending_id(self, caller_key: str) -> str | None:
        """Return the id of the call that waits or was decided and not resumed yet."""
        value = await self._store.cache.get(AWAITED_CACHE, _build_awaited_key(caller_key))
        return value.decode() if value else None

    async def remember(self, caller_key: str, pending_id: str | None) -> None:
        """Remember the call, or that none waits: then the next message is a new request."""
        key, value = _build_awaited_key(caller_key), (pending_id or "").encode()
        await self._store.cache.put(AWAITED_CACHE, key, value, ttl=AWAITED_TTL_S)


def _build_awaited_key(caller_key: str) -> str:
    return hashlib.sha256(caller_key.encode("utf-8", "surrogatepass")).hexdigest()


_NOTE_PATTERN = re.compile(r"\(approval (?P<id>apr_[0-9a-f]{32})\)\s*$")


def format_approval_note(pending: Pending, address: str) -> str:
    """Return the text for a waiting call. A later request is recognised by the id at its end."""
    return (
        f"{pending.tool} needs a person's approval before it runs: {pending.reason}. "
        f"Approve or reject it at {build_approval_url(address, pending.pending_id)} and send any message "
        f"to continue. (approval {pending.pending_id})"
    )


def split_at_note(conversation: ChatConversation) -> tuple[ChatConversation, str | None]:
    """Return the conversation as it was before the approval note in the last answer, and the id of the call.

    Without such a note, return the conversation unchanged. Messages after a note are not new requests.
    """
    pending_id: str | None = None
    while not conversation.since and (found := _find_note(conversation.history)) is not None:
        at, named = found
        if pending_id not in (None, named):
            break
        pending_id = named
        conversation = ChatConversation.from_messages(conversation.history[:at])
    return conversation, pending_id


def _find_note(history: Sequence[Message]) -> tuple[int, str] | None:
    """Return the index of the last answer and the id of its call, if it is an approval note."""
    for at in range(len(history) - 1, -1, -1):
        message = history[at]
        if message.role == "assistant" and not message.tool_calls:
            found = _NOTE_PATTERN.search(message.text)
            return None if found is None or at == 0 else (at, found["id"])
        if message.role not in ("system", "developer"):
            return None
    return None


@frozen
class CompletionTurn:
    """One request of one caller, with all its options resolved."""

    request: ChatRequest
    request_options: RequestOptions
    principal: Principal
    access_scope: AccessScope
    model: str | None = None  # used instead of the configured one
    keyless: bool = False  # no model is configured
    # The caller's own, for servers configured to get it.
    authorization: CallerAuthorization | None = field(default=None, repr=False)
    chat: str = ""  # conversation id from `ChatIndex`, if the caller gave none

    @property
    def conversation(self) -> str:
        """The conversation id: the caller's own, made unique per caller, or the one found for this chat."""
        given = self.request_options.conversation
        return self.chat if given is None else build_conversation_id(self.principal, given)

    def build_context(self) -> CallContext:
        """Build the context under which what is read in this conversation is recorded."""
        caller = self.principal.name
        return CallContext(call_id=create_id("cal"), conversation=self.conversation, caller=caller)

    @property
    def caller_key(self) -> str:
        """A key for the caller. Chats are stored under it; one may go on with another profile."""
        return f"{self.principal.kind} {self.principal.name}"


def build_route_options(turn: CompletionTurn, conversation: ChatConversation, router: Router) -> RouteOptions:
    """Build the route options. Options that were not given are left to the router."""
    chat_request, request_options = turn.request, turn.request_options
    mode = request_options.mode or router.settings.completions.mode
    if mode == "auto":
        mode = Mode.KEYLESS if turn.keyless else Mode.SIMPLE
    return RouteOptions(
        history=conversation.history,
        conversation=turn.conversation,
        caller=turn.principal.name,
        profile=turn.access_scope.profile,
        scopes=turn.access_scope.scopes,
        mode=mode,
        server=request_options.server,
        max_tools=request_options.max_tools,
        effort=request_options.effort,
        persona=request_options.persona,
        directives=request_options.directives,
        max_turns=request_options.max_turns,
        seconds=request_options.seconds,
        dry_run=bool(request_options.dry_run),
        model=turn.model,
        since=conversation.since,
        own_terms=True,
        authorization=turn.authorization,
        options=chat_request.options,
        parts=conversation.request.parts,
        words=None if conversation.request.role == "user" else (),  # without a request of a person: none
        caller_tools=chat_request.tools,
        tool_choice=chat_request.tool_choice,
    )


MAX_APPROVAL_WAITS: Final = 50  # approvals awaited within one request


class AnswerListener(Protocol):
    """Receives an answer while it is produced."""

    async def on_start(self, packet_id: str) -> None:
        """Receive the id of the request."""
        ...

    async def on_text(self, piece: str) -> None:
        """Receive a piece of the answer."""
        ...

    async def on_note(self, text: str) -> None:
        """Receive a progress note, which is not part of the answer."""
        ...


class RecordingListener:
    """A listener that also keeps the text it forwards."""

    def __init__(self, listener: AnswerListener) -> None:
        self._listener = listener
        self.on_start = listener.on_start
        self.on_note = listener.on_note
        self.pieces: list[str] = []

    async def on_text(self, piece: str) -> None:
        self.pieces.append(piece)
        await self._listener.on_text(piece)


@frozen
class CompletionResult:
    """The result of a request: the last route, and the cost of all routes together."""

    route: Route
    text: str  # for the caller
    finish: str
    refusal: str = ""  # replaces the text
    reasoning: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    milliseconds: float = 0.0
    model_milliseconds: float = 0.0
    parts: tuple[Route, ...] = ()  # several if approvals were awaited
    approve_at: str | None = None


class CompletionRunner:
    """Answers requests."""

    def __init__(self, router: Router, *, address: str) -> None:
        self._router = router
        self._address = (router.settings.gateway.public_url or address).rstrip("/")
        self._hidden_messages = HiddenMessages(router.store)
        self._awaited_approvals = AwaitedApprovals(router.store)
        self._chat_index = ChatIndex(router.store)
        self._ready_deadline = time.monotonic() + FIRST_CONNECT_TIMEOUT_S
        self._settled = False

    async def run_turn(
        self, turn: CompletionTurn, listener: AnswerListener | None = None
    ) -> CompletionResult:
        """Return the answer. Raises `CompletionError` if there is none."""
        began = time.monotonic()
        if turn.request_options.conversation is None:
            chat, earlier = await self._chat_index.find_conversation(
                turn.caller_key, turn.request.conversation.messages
            )
            turn = replace(turn, chat=chat)
            await self._router.calls.data_trails.inherit(turn.build_context(), earlier)
        recorder = None if listener is None else RecordingListener(listener)
        try:
            routes = await self._run_routes(turn, recorder)
        except FingerpostError as error:
            raise build_error(error) from error
        route = routes[-1]
        await self._remember_pending(turn, route)
        if route.failure is not None and not route.packet.tool_routing.worked:
            raise build_error(route.failure)
        if route.hidden and route.tool_calls:
            await self._hidden_messages.remember(
                _build_conversation_key(turn), route.tool_calls, route.hidden
            )
        result = self._build_result(routes, (time.monotonic() - began) * 1000)
        if turn.request_options.conversation is None:
            await self._remember_chat(turn, result, "" if recorder is None else "".join(recorder.pieces))
        return result

    async def _remember_chat(self, turn: CompletionTurn, result: CompletionResult, streamed: str) -> None:
        """Remember the chat by the messages including this answer, as the caller got it."""
        answer = Message(
            role="assistant",
            text=result.refusal or streamed + get_unstreamed_text(result.text, streamed),
            tool_calls=result.route.tool_calls,
        )
        messages = (*turn.request.conversation.messages, answer)
        # What was read in a chat has to be known in other processes, and after a restart.
        has_sources = await self._router.calls.data_trails.has_sources(turn.build_context())
        durable = has_sources or bool(answer.tool_calls) or result.approve_at is not None
        await self._chat_index.remember(turn.caller_key, messages, turn.conversation, durable=durable)

    async def _run_routes(self, turn: CompletionTurn, listener: AnswerListener | None) -> list[Route]:
        await self.wait_until_ready()
        conversation, waiting = await self._find_waiting_call(turn)
        await self._check_server(turn)
        if conversation is None:
            # To resume a known request: its history and parts are stored.
            route_options = build_route_options(turn, turn.request.conversation, self._router)
            route_options = replace(route_options, history=None, since=(), parts=())
        else:
            since = await self._hidden_messages.restore_messages(
                _build_conversation_key(turn), conversation.since
            )
            route_options = replace(build_route_options(turn, conversation, self._router), since=since)
        if waiting is not None and waiting.packet_id is not None:
            if listener is not None:
                await listener.on_start(waiting.packet_id)
            route = await self._resume_call(waiting.pending_id, route_options, listener)
        else:
            route = await self._route_text(turn.request.conversation.request.text, route_options, listener)
        routes = [route]
        until = time.monotonic() + self._router.settings.completions.approval_seconds
        while route.outcome is RouteOutcome.WAITING and route.pending is not None:
            settled = await self._wait_for_decision(route.pending, until - time.monotonic(), listener)
            if not settled or len(routes) > MAX_APPROVAL_WAITS:
                break
            route = await self._resume_call(
                route.pending.pending_id, route_options, listener, route.packet_id
            )
            routes.append(route)
        return routes

    async def wait_until_ready(self) -> None:
        """Wait for the servers to connect after a start, up to a timeout."""
        if not self._settled:
            left = max(0.0, self._ready_deadline - time.monotonic())
            settled = await self._router.servers.wait_until_settled(timeout=left)
            self._settled = settled or time.monotonic() >= self._ready_deadline

    async def _check_server(self, turn: CompletionTurn) -> None:
        """Raise `CompletionError` if a limited caller names a server that it cannot see."""
        server, access_scope = turn.request_options.server, turn.access_scope
        if server is None or not access_scope.scopes:
            return
        view = await self._router.look(
            caller=turn.principal.name, profile=access_scope.profile, scopes=access_scope.scopes
        )
        if all(card.server != server for card in view.visible.cards):
            raise CompletionError(400, f"There is no server {server[:60]!r} for you.", "fingerpost.server")

    async def _route_text(
        self, text: str, route_options: RouteOptions, listener: AnswerListener | None
    ) -> Route:
        if listener is None:
            return await self._router.requests.route(text, route_options)
        async with aclosing(self._router.requests.stream(text, route_options)) as items:
            failed = False
            async for item in items:
                if isinstance(item, Route):
                    return item
                # Hold back text after a model error: it is not the model's, and the result may be an error.
                failed = failed or (isinstance(item, ModelAnswered) and item.error is not None)
                await _forward_item(listener, item, silent=failed)
        raise RuntimeError("a stream ended without its route")

    async def _resume_call(
        self,
        pending_id: str,
        route_options: RouteOptions,
        listener: AnswerListener | None,
        packet_id: str | None = None,
    ) -> Route:
        requests = self._router.requests
        if listener is None:
            return await requests.resume(pending_id, None, route_options, packet_id=packet_id)
        routes: list[Route] = []
        failures: list[Exception] = []
        send, receive = anyio.create_memory_object_stream[str](float("inf"))

        def pass_on(piece: str) -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the reader is gone
                send.send_nowait(piece)

        options = replace(route_options, on_text=pass_on)

        async def run() -> None:
            with send:
                try:
                    routes.append(await requests.resume(pending_id, None, options, packet_id=packet_id))
                except Exception as error:  # noqa: BLE001 - raised below; the group would wrap it
                    failures.append(error)

        async with anyio.create_task_group() as tasks, aclosing(receive):
            tasks.start_soon(run)
            async for piece in receive:
                await listener.on_text(piece)
        if failures:
            raise failures[0]
        return routes[0]

    async def _find_waiting_call(
        self, turn: CompletionTurn
    ) -> tuple[ChatConversation | None, Pending | None]:
        """Return the conversation, and the call to resume: named by id, or noted in the last answer.

        Only calls of the same caller are found. The conversation is None if the journal has it and it must
        not be sent again.
        """
        asked = turn.request_options.resume
        conversation, noted = split_at_note(turn.request.conversation)
        if asked is None and noted is None and (decided := await self._find_decided_call(turn)) is not None:
            return None, decided
        named = asked or noted
        pending = None if named is None else await self._router.store.approvals.get(named)
        if pending is not None and pending.caller == turn.principal.name and pending.packet_id is not None:
            return conversation, pending
        if asked is None:
            return turn.request.conversation, None
        raise CompletionError(
            404, f"Nothing of yours waits as {asked[:60]!r}.", param="fingerpost.resume", code="not_found"
        )

    async def _find_decided_call(self, turn: CompletionTurn) -> Pending | None:
        """Return the call that was decided since the last answer, for a caller that sends only new messages.

        While the call waits, a message is a new request, because several chats may share a conversation name.
        """
        if turn.request_options.conversation is None or not turn.request.conversation.is_bare:
            return None
        named = await self._awaited_approvals.get_pending_id(_build_conversation_key(turn))
        pending = None if named is None else await self._router.store.approvals.get(named)
        if pending is None or pending.caller != turn.principal.name or pending.packet_id is None:
            return None
        return pending if pending.decision in (Decision.APPROVED, Decision.REJECTED) else None

    async def _remember_pending(self, turn: CompletionTurn, route: Route) -> None:
        """Remember which call a named conversation waits for, until this call is known no more or done."""
        if turn.request_options.conversation is None:
            return
        key = _build_conversation_key(turn)
        if route.outcome is RouteOutcome.WAITING and route.pending is not None:
            await self._awaited_approvals.remember(key, route.pending.pending_id)
        elif (named := await self._awaited_approvals.get_pending_id(key)) is not None:
            pending = await self._router.store.approvals.get(named)
            if pending is None or route.packet_id in pending.packets:
                await self._awaited_approvals.remember(key, None)

    async def _wait_for_decision(
        self, pending: Pending, seconds: float, listener: AnswerListener | None
    ) -> bool:
        if pending.decision is not Decision.WAITING:
            return True
        if seconds <= 0:
            return False
        if listener is not None:
            where = build_approval_url(self._address, pending.pending_id)
            await listener.on_note(f"{pending.tool} waits for approval at {where}")
        return await wait_for_decision(self._router, pending.pending_id, seconds)

    def _build_result(self, routes: Sequence[Route], milliseconds: float) -> CompletionResult:
        route = routes[-1]
        waiting = route.pending if route.outcome is RouteOutcome.WAITING else None
        # The text is empty if the model wrote none or refused.
        text = "" if route.refusal or route.wordless else route.answer
        return CompletionResult(
            route=route,
            text=text if waiting is None else _format_waiting_text(route, waiting, self._address),
            finish=_get_finish_reason(route),
            refusal=route.refusal,
            reasoning=route.reasoning,
            prompt_tokens=sum(part.prompt_tokens for part in routes),
            completion_tokens=sum(part.completion_tokens for part in routes),
            milliseconds=milliseconds,
            model_milliseconds=sum(part.model_milliseconds for part in routes),
            parts=tuple(routes),
            approve_at=None if waiting is None else build_approval_url(self._address, waiting.pending_id),
        )


async def _forward_item(listener: AnswerListener, item: StreamItem, *, silent: bool) -> None:
    if isinstance(item, AnswerPiece):
        if not silent:
            await listener.on_text(item.text)
    elif isinstance(item, PacketReceived):
        await listener.on_start(item.packet.packet_id)
    elif isinstance(item, AttemptStarted):
        await listener.on_note(f"calling {item.tool}")


def get_unstreamed_text(answer: str, streamed_text: str) -> str:
    """Return the part of the answer that was not streamed. Routes without a model stream nothing."""
    answer, streamed = answer.strip(), streamed_text.strip()
    if not answer or streamed.endswith(answer):
        return ""
    if answer.startswith(streamed):
        return answer[len(streamed) :]
    return f"\n\n{answer}"


def _build_conversation_key(turn: CompletionTurn) -> str:
    return f"{turn.principal.name}\n{turn.conversation}"


def _format_waiting_text(route: Route, waiting: Pending, address: str) -> str:
    """Return the results read so far, and how the call can be approved."""
    answer = route.answer.removesuffix(route.question.text).strip() if route.question is not None else ""
    note = format_approval_note(waiting, address)
    return f"{answer}\n\n{note}" if answer else note


def _get_finish_reason(route: Route) -> str:
    if route.outcome is RouteOutcome.HANDED_BACK:
        return "tool_calls"
    if route.outcome is RouteOutcome.LIMITED:
        return "length"
    models_own = route.outcome is RouteOutcome.ANSWERED or route.refusal or route.wordless
    return route.finish if models_own and route.finish != "tool_calls" else "stop"
