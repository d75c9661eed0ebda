"""The call path on one page: name, arguments, policy, permit, execution, digest.

Nothing reaches a tool around it. Every step leaves an event; every ending,
good or bad, is an `Outcome` of the same shape.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from fingerpost.call import reread
from fingerpost.call.approvals import Approvals
from fingerpost.call.arguments import prepare, translate
from fingerpost.call.digest import Results, budget_for, digest, handle_of
from fingerpost.call.execution import Job, Runner, in_parallel
from fingerpost.call.fingerprints import call_fingerprint
from fingerpost.call.names import NotFound, Resolved, operation_of, resolve
from fingerpost.call.outcomes import Endings
from fingerpost.call.policy import Policy, doubted, permit
from fingerpost.call.progress import Progress
from fingerpost.catalog import Catalog
from fingerpost.errors import CallError, StoreError
from fingerpost.events import (
    CallEvent,
    CallFinished,
    CallPrepared,
    CallReceived,
    CallRefused,
    CallRuled,
    EventSink,
    ResultDigested,
    unfinished_attempts,
)
from fingerpost.records import (
    Call,
    CallContext,
    Decision,
    Digest,
    Effect,
    ErrorKind,
    Execution,
    Json,
    JsonObject,
    LatencyProfile,
    Outcome,
    ParameterError,
    Pending,
    Permit,
    Repair,
    Ruling,
    ToolCall,
    ToolCard,
    UsageSample,
    Verdict,
    utc_now,
)
from fingerpost.servers import Servers
from fingerpost.settings import Settings
from fingerpost.store import Store

LARGE = 100_000  # characters


@dataclass(frozen=True, slots=True)
class Ready:
    """A call that may be judged, with the card it was made from."""

    call: Call
    card: ToolCard


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What name and arguments lead to, without running anything. No `problem`: the call could be made."""

    tool: str | None = None
    arguments: JsonObject = field(default_factory=dict[str, Json])
    repairs: tuple[Repair, ...] = ()
    errors: tuple[ParameterError, ...] = ()
    problem: str = ""
    signature: str = ""


class CallPath:
    """Runs calls for every surface."""

    def __init__(
        self, *, catalog: Catalog, servers: Servers, store: Store, settings: Settings, events: EventSink
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._settings = settings
        self._events = events
        self._policy = Policy(settings.policy)
        self._running: set[str] = set()
        self.results = Results(store.cache, keep_seconds=settings.digest.keep_seconds)
        self.approvals = Approvals(store, events=events, settings=settings.call)
        self.runner = Runner(
            servers,
            settings=settings.call,
            flags=settings.flags,
            events=events,
            journal=store.journal.append,
        )

    async def call(self, wish: ToolCall, context: CallContext) -> Outcome:
        """Do what a model or a person asked for, as far as the policy and they allow."""
        began = time.monotonic()
        endings = Endings(wish, context)
        self._running.add(context.call_id)
        self._tell(context, CallReceived, name=wish.name, arguments=wish.arguments, caller=context.caller,
                   conversation=context.conversation, dry_run=context.dry_run)  # fmt: skip
        try:
            outcome = await self._go(wish, context, endings)
        except StoreError as error:  # nothing that needs a record runs without one
            outcome = endings.failure(wish.name, ErrorKind.UNAVAILABLE, str(error), hint=error.hint or "")
        finally:
            self._running.discard(context.call_id)
        milliseconds = (time.monotonic() - began) * 1000
        self._tell(context, CallFinished, tool=outcome.tool, success=outcome.success, error=outcome.error,
                   detail=outcome.detail, milliseconds=milliseconds)  # fmt: skip
        return outcome

    async def call_many(self, wishes: Sequence[tuple[ToolCall, CallContext]]) -> tuple[Outcome, ...]:
        """Independent calls side by side, outcomes in order; writes to one server follow each other."""
        return await in_parallel([self._job(wish, context) for wish, context in wishes])

    def _job(self, wish: ToolCall, context: CallContext) -> Job[Outcome]:
        found = resolve(wish, self._catalog.snapshot)
        server, effect = ("", Effect.READ)  # a call that leads nowhere waits for nobody
        if isinstance(found, Resolved):
            server, effect = found.card.server, found.card.effect.value
        return Job(server, effect, lambda: self.call(wish, context))

    async def _go(self, wish: ToolCall, context: CallContext, endings: Endings) -> Outcome:
        if wish.name == reread.NAME and self._catalog.snapshot.find(reread.NAME) is None:
            return await reread.read_result(self.results, wish, context)
        ready = self._prepare(wish, context, endings)
        if isinstance(ready, Outcome):
            return ready
        ruling = doubted(await self._policy.judge(ready.call, context), context)
        self._tell(context, CallRuled, tool=ready.call.tool, verdict=ruling.verdict, reason=ruling.reason,
                   rule=ruling.rule)  # fmt: skip
        if context.dry_run:
            return endings.dry_run(ready.call, ruling)
        leave = await self._leave(ready.call, context, ruling)
        if leave is None:
            return await self._without_leave(ready.call, context, ruling, endings)
        execution = await self._execute(ready, leave, context)
        return await self._finish(execution, ready, context, endings)

    # -- from words to a call -----------------------------------------------------------------------

    def _prepare(self, wish: ToolCall, context: CallContext, endings: Endings) -> Ready | Outcome:
        found = resolve(wish, self._catalog.snapshot)
        if isinstance(found, NotFound):
            outcome = endings.not_found(found.near, ambiguous=found.ambiguous)
            self._refuse(context, outcome)
            return outcome
        made = prepare(found.card, found.arguments, repair=self._settings.flags.argument_repair)
        if made.errors:
            outcome = endings.invalid(found.card.key, made.errors, made.repairs, made.signature)
            self._refuse(context, outcome)
            return outcome
        call = _call(found.card, made.arguments, made.repairs)
        self._tell(context, CallPrepared, tool=call.tool, operation=call.operation, arguments=call.arguments,
                   fingerprint=call.fingerprint, repairs=call.repairs)  # fmt: skip
        return Ready(call, found.card)

    def check(self, wish: ToolCall) -> Checked:
        """What would become of the call's name and arguments. Nothing runs, nobody is asked or told."""
        found = resolve(wish, self._catalog.snapshot)
        if isinstance(found, NotFound):
            endings = Endings(wish, CallContext(call_id=""))
            return Checked(problem=endings.not_found(found.near, ambiguous=found.ambiguous).content)
        made = prepare(found.card, found.arguments, repair=self._settings.flags.argument_repair)
        return Checked(
            tool=found.card.key,
            arguments=made.arguments,
            repairs=made.repairs,
            errors=made.errors,
            problem="; ".join(error.message for error in made.errors),
            signature=made.signature,
        )

    # -- permission ---------------------------------------------------------------------------------

    async def _leave(self, call: Call, context: CallContext, ruling: Ruling) -> Permit | None:
        if ruling.verdict is Verdict.ASK:
            return await self.approvals.spend(call, context)
        return permit(call, ruling)

    async def _without_leave(
        self, call: Call, context: CallContext, ruling: Ruling, endings: Endings
    ) -> Outcome:
        if ruling.verdict is Verdict.DENY:
            outcome = endings.denied(call, ruling)
            self._refuse(context, outcome)
            return outcome
        pending = await self.approvals.request(call, context, ruling)
        return endings.waiting(call, pending)

    async def decide(
        self,
        pending_id: str,
        decision: Decision,
        *,
        by: str,
        reason: str | None = None,
        edited_arguments: JsonObject | None = None,
        for_conversation: bool = False,
    ) -> Pending:
        """A person's word on a waiting call. Edited arguments must fit the tool's schema as any others."""
        edited = None
        if edited_arguments is not None:
            pending = await self.approvals.get(pending_id)
            card = self._catalog.snapshot.get(pending.tool) if pending is not None else None
            if card is None:
                message = f"{pending_id} cannot be edited: its tool is not available now"
                raise CallError(message, hint="approve or reject it as it is")
            made = prepare(card, edited_arguments, repair=self._settings.flags.argument_repair)
            if made.errors:
                message = "; ".join(error.message for error in made.errors)
                raise CallError(message, hint=f"the tool takes: {made.signature}")
            edited = _call(card, made.arguments, made.repairs)
        scope = "conversation" if for_conversation else "once"
        return await self.approvals.decide(
            pending_id, decision, by=by, reason=reason, edited=edited, scope=scope
        )

    async def resume(self, pending_id: str, context: CallContext) -> Outcome:
        """Go on with a call that waited for a person: run it, or say what became of it."""
        pending = await self.approvals.get(pending_id)
        if pending is None:
            message = f"no call waits under {pending_id}"
            raise CallError(message, hint="`fingerpost approvals` lists those that do")
        arguments = pending.arguments if pending.edited_arguments is None else pending.edited_arguments
        wish = ToolCall(name=pending.tool, arguments=arguments)
        context = replace(
            context,
            call_id=pending.call_id or context.call_id,  # one trace from the question to the answer
            conversation=pending.conversation,
            caller=pending.caller,
            packet_id=pending.packet_id or context.packet_id,
            doubt=pending.reason,  # what one was asked about runs by the grant, whatever the rules say now
        )
        if pending.decision is not Decision.APPROVED:
            return Endings(wish, context).undecided(pending)
        if await self._ended_in_the_dark(context):
            return Endings(wish, context).unknown(pending)
        return await self.call(wish, context)

    async def _ended_in_the_dark(self, context: CallContext) -> bool:
        """Whether an attempt of this call began and nobody knows how it ended: the process died under it."""
        recorded = await self._store.journal.events(
            packet_id=context.packet_id or context.call_id, kinds=("attempt_started", "attempt_finished")
        )
        lost = unfinished_attempts(entry.event for entry in recorded)
        ours = any(attempt.call_id == context.call_id for attempt in lost)
        return ours and context.call_id not in self._running

    # -- execution ----------------------------------------------------------------------------------

    async def _execute(self, ready: Ready, leave: Permit, context: CallContext) -> Execution:
        async with Progress(ready.card, ready.call.arguments, context, events=self._events) as progress:
            return await self.runner.run(
                ready.call,
                leave,
                context,
                latency=ready.card.intelligence.latency,
                alternatives=self._alternatives,
                permitting=lambda call: self._permit_fallback(call, context),
                latency_of=self._latency,
                on_progress=progress.report,
            )

    def _alternatives(self, call: Call) -> Iterator[Call]:
        """The same wish for each tool further down the line, where its meaning can be carried over."""
        snapshot = self._catalog.snapshot
        source = snapshot.get(call.tool)
        if source is None:
            return
        for key in source.intelligence.hierarchy.value:
            target = snapshot.find(key)
            if target is not None and target.key != call.tool:
                made = translate(call.arguments, source, target)
                if not made.errors:
                    yield _call(target, made.arguments, made.repairs)

    def _latency(self, call: Call) -> LatencyProfile | None:
        card = self._catalog.snapshot.get(call.tool)
        return None if card is None else card.intelligence.latency

    async def _permit_fallback(self, call: Call, context: CallContext) -> Permit | None:
        """A fallback is judged like any call, but nobody is asked for it."""
        return await self._leave(call, context, await self._policy.judge(call, context))

    async def _finish(
        self, execution: Execution, ready: Ready, context: CallContext, endings: Endings
    ) -> Outcome:
        if execution.result is None:
            self._note_usage(execution, tokens=0)
            outcome = endings.failed(execution, ready.call)
            if not execution.attempts:  # nothing was sent: a loop, for one
                self._refuse(context, outcome)
            return outcome
        card = self._catalog.snapshot.get(execution.call.tool) or ready.card
        cut = await self._cut(execution.result, card, context)
        if cut.handle is not None:
            await self.results.keep(context.call_id, execution.result)
        self._tell(context, ResultDigested, tokens=cut.tokens, original_tokens=cut.original_tokens,
                   dropped=cut.dropped, handle=cut.handle)  # fmt: skip
        self._note_usage(execution, tokens=cut.original_tokens)
        return endings.answered(execution, ready.call, cut)

    async def _cut(self, result: JsonObject, card: ToolCard, context: CallContext) -> Digest:
        """The digest; of a large result in a thread, because cutting it takes a while."""
        handle = handle_of(context.call_id)
        budget = (
            budget_for(card, context, self._settings.digest) if self._settings.flags.digest else sys.maxsize
        )
        cutting = partial(digest, result, card, budget=budget, request=context.request, handle=handle)
        return await anyio.to_thread.run_sync(cutting) if _is_large(result) else cutting()

    def _note_usage(self, execution: Execution, *, tokens: int) -> None:
        for attempt in execution.attempts:
            if not attempt.cached and attempt.milliseconds > 0:
                self._store.usage.note(
                    UsageSample(
                        tool=attempt.tool,
                        milliseconds=attempt.milliseconds,
                        tokens=tokens if attempt.error is None else 0,
                        success=attempt.error is None,
                        at=utc_now(),
                    )
                )

    # -- telling ------------------------------------------------------------------------------------

    def _refuse(self, context: CallContext, outcome: Outcome) -> None:
        assert outcome.error is not None
        self._tell(context, CallRefused, error=outcome.error, reason=outcome.content,
                   parameter_errors=outcome.parameter_errors)  # fmt: skip

    def _tell(self, context: CallContext, kind: type[CallEvent], **facts: Any) -> None:
        event = kind(call_id=context.call_id, packet_id=context.packet_id or context.call_id, **facts)
        self._events.emit(event)


def _is_large(result: JsonObject) -> bool:
    """Whether cutting this result would hold up the event loop. A cheap look at its texts, no more."""
    content = result.get("content")
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts[:100] if isinstance(part, dict))
    size = sum(len(text) for text in texts if isinstance(text, str))
    return size > LARGE or len(parts) > 100 or "structuredContent" in result


def _call(card: ToolCard, arguments: JsonObject, repairs: tuple[Repair, ...]) -> Call:
    return Call(
        tool=card.key,
        server=card.server,
        name=card.name,
        operation=operation_of(card, arguments),
        arguments=arguments,
        effect=card.effect.value,
        fingerprint=call_fingerprint(card.fingerprint, card.key, arguments),
        definition_fingerprint=card.fingerprint,
        repairs=repairs,
    )
