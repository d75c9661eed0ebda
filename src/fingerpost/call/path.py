"""The call path on one page: name, arguments, policy, permit, execution, digest.

Nothing reaches a tool around it. Every step leaves an event; every ending,
good or bad, is an `Outcome` of the same shape.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from fingerpost.call import reread
from fingerpost.call.approvals import Approvals
from fingerpost.call.arguments import translate
from fingerpost.call.destinations import OwnAddresses
from fingerpost.call.digest import Results, fitted
from fingerpost.call.execution import Job, Runner, awaits_input, in_parallel
from fingerpost.call.fingerprints import call_fingerprint
from fingerpost.call.hiding import hidden_tools
from fingerpost.call.idempotency import KeyedCalls, problem_with_key
from fingerpost.call.making import Checked, call_of, check, edited_call, prepared
from fingerpost.call.names import NotFound, Resolved, absent, resolve
from fingerpost.call.outcomes import Endings
from fingerpost.call.paths import Placement
from fingerpost.call.policy import Policy, doubted, permit
from fingerpost.call.progress import Progress
from fingerpost.call.rounds import Rounds
from fingerpost.call.scopes import bounded_by, within
from fingerpost.call.under_way import UnderWay
from fingerpost.call.unseen import may_have_any
from fingerpost.catalog import Absence, Catalog, Snapshot
from fingerpost.catalog.links import may_have_more_fallbacks
from fingerpost.errors import CallError, FingerpostError, LimitReached, StoreError
from fingerpost.events import (
    AttemptFinished,
    CallEvent,
    CallFinished,
    CallPrepared,
    CallReceived,
    CallRefused,
    CallReplayed,
    CallRuled,
    Event,
    EventSink,
    Later,
    ResultDigested,
    unfinished_attempts,
)
from fingerpost.frozen import frozen
from fingerpost.records import (
    Call,
    CallContext,
    Decision,
    Digest,
    Effect,
    ErrorKind,
    Execution,
    JsonObject,
    LatencyProfile,
    Outcome,
    Pending,
    Permit,
    Ruling,
    Scope,
    ServerState,
    ToolCall,
    ToolCard,
    UsageSample,
    Verdict,
    utc_now,
)
from fingerpost.servers import Servers
from fingerpost.servers.caller import AWAITS, Passage
from fingerpost.settings import RuleSettings, Settings
from fingerpost.store import Store

logger = logging.getLogger("fingerpost.call")

GAVE_UP = "the caller gave up before the call was over"

MOST_BOUNDED: Final = 100  # bounds whose tools are remembered
MOMENT: Final = timedelta(seconds=2)
LOOK_AGAIN_S: Final = 0.05
FALLBACK_SERVERS_S: Final = 10.0  # for servers to connect, when a tool failed that they may stand in for


@frozen(kw_only=False)
class Ready:
    """A call that may be judged, with the card it was made from."""

    call: Call
    card: ToolCard


class CallPath:
    """Runs calls for every surface."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        servers: Servers,
        store: Store,
        settings: Settings,
        events: EventSink,
        tasks: TaskGroup,
        bounds: Mapping[str, Scope] | None = None,
        instance: str | None = None,
    ) -> None:
        """`tasks` must be left after `under_way.end`: calls with an idempotency key outlive their callers."""
        self._catalog = catalog
        self._instance = instance
        self._servers = servers
        self._store = store
        self._settings = settings
        self._events = Later(events)
        store.journal.comes_after(self._events.hand_on)
        gateway = settings.gateway
        self.addresses = OwnAddresses(port=gateway.port, public_url=gateway.public_url)
        self.use_rules(settings.policy, bounds or {})
        self._running: dict[str, str] = {}  # the tool of every call under way, by call
        self._contexts: dict[str, CallContext] = {}  # and who makes it
        self._granted: dict[str, Call] = {}  # those that run by a person's grant for that very call
        self.under_way = UnderWay()
        self._rounds = Rounds()
        self._bounded: dict[tuple[Scope, ...], tuple[Snapshot, Snapshot]] = {}  # what lies within bounds
        self._keyed = KeyedCalls(
            store.idempotency, tasks, self.under_way, seconds=settings.call.idempotency_seconds
        )
        self.results = Results(store.cache, keep_seconds=settings.digest.keep_seconds)
        self.approvals = Approvals(store, events=events, settings=settings.call)
        self.runner = Runner(
            servers,
            settings=settings.call,
            flags=settings.flags,
            events=self._events,
            journal=self._write_down,
            hasten=store.journal.hasten,
            assure=self._assure,
            unbounded=settings.builtin.enabled,
        )

    def use_rules(self, rules: Sequence[RuleSettings], bounds: Mapping[str, Scope]) -> None:
        """Judge by these from the next call on; `bounds` are of profiles."""
        self._rules, self._bounds = rules, bounds
        self._policy = Policy(
            rules,
            bounds=bounds,
            addresses=self.addresses,
            local_addresses=self._settings.call.local_addresses,
        )

    async def call(self, wish: ToolCall, context: CallContext, passage: Passage | None = None) -> Outcome:
        """Do what a model or a person asked for, as far as the policy and they allow.

        `passage` is what goes between the caller and the server beside the call.
        """
        async with self.under_way.one():
            try:
                if context.idempotency_key is None:
                    return await self._call(wish, context, passage)
                return await self._keyed.finish(partial(self._call, wish, context, passage))
            finally:
                if passage is None:  # who passes an answer on sends it first
                    self._events.flush()

    async def _call(self, wish: ToolCall, context: CallContext, passage: Passage | None) -> Outcome:
        began = time.monotonic()
        endings = Endings(wish, context)
        self._running[context.call_id] = wish.name
        self._contexts[context.call_id] = context
        self._tell_received(wish, context)
        try:
            outcome = await self._go(wish, context, endings, passage)
        except (StoreError, LimitReached) as error:  # nothing that needs a record runs without one
            outcome = endings.failure(wish.name, ErrorKind.UNAVAILABLE, str(error), fix=error.hint or "")
        except FingerpostError:
            raise
        except Exception as error:
            logger.exception("%s failed inside of Fingerpost", context.call_id)
            outcome = self._broke(wish, context, endings, error)
        except anyio.get_cancelled_exc_class():  # what became of its attempt, the attempt's own event says
            tool = self._running.get(context.call_id, wish.name)
            gone = endings.failure(tool, ErrorKind.CANCELLED, GAVE_UP, detail=GAVE_UP)
            self._tell_end(context, gone, began)
            raise
        finally:
            self._running.pop(context.call_id, None)
            self._contexts.pop(context.call_id, None)
        self._tell_end(context, outcome, began)
        return outcome

    def _broke(self, wish: ToolCall, context: CallContext, endings: Endings, error: Exception) -> Outcome:
        """A fault of ours in the middle of a call. It may have been sent."""
        tool = self._running.get(context.call_id, wish.name)
        card = self._catalog.whole.get(tool)
        reads = card is None or card.effect_of(None) is Effect.READ
        kind = ErrorKind.EXECUTION_FAILED if reads else ErrorKind.UNKNOWN
        said = f"something went wrong inside Fingerpost ({type(error).__name__}); its log says what"
        content = f"{tool}: {said}"
        return endings.failure(tool, kind, content, detail=content)

    def context_of(self, call_id: str) -> CallContext | None:
        """Who makes a call that is under way: our own servers ask, to act for the same person."""
        return self._contexts.get(call_id)

    async def call_many(self, wishes: Sequence[tuple[ToolCall, CallContext]]) -> tuple[Outcome, ...]:
        """Independent calls side by side, outcomes in order; writes to one server follow each other.

        The same write twice among them is more likely a slip of the model than meant: the second is refused.
        """
        jobs: list[Job[Outcome]] = []
        writes: set[str] = set()
        for wish, context in wishes:
            card, arguments, effect = self._meant(wish, context)
            write = call_fingerprint("", card.key, arguments) if card is not None else None
            if write is not None and effect is not Effect.READ and write in writes:
                jobs.append(Job("", Effect.READ, partial(self._refuse_repeated, wish, context)))
                continue
            if write is not None:
                writes.add(write)
            server = "" if card is None else card.server  # a call that leads nowhere waits for nobody
            jobs.append(Job(server, effect, partial(self.call, wish, context)))
        return await in_parallel(jobs)

    def _meant(self, wish: ToolCall, context: CallContext) -> tuple[ToolCard | None, JsonObject, Effect]:
        found = resolve(wish, self._catalog.seen_with(context.scopes))
        if isinstance(found, NotFound):
            return None, wish.arguments, Effect.READ
        operation = found.arguments.get("operation")
        named = operation if isinstance(operation, str) else None
        return found.card, found.arguments, found.card.effect_of(named)

    async def _refuse_repeated(self, wish: ToolCall, context: CallContext) -> Outcome:
        began = time.monotonic()
        self._tell_received(wish, context)
        outcome = Endings(wish, context).repeated()
        self._refuse(context, outcome)
        self._tell_end(context, outcome, began)
        return outcome

    async def _go(
        self, wish: ToolCall, context: CallContext, endings: Endings, passage: Passage | None
    ) -> Outcome:
        if context.idempotency_key is not None and (problem := problem_with_key(context.idempotency_key)):
            return endings.bad_key(problem)
        if wish.name == reread.NAME and self._catalog.snapshot.find(reread.NAME) is None:
            return await reread.read_result(self.results, wish, context)
        ready = self._prepare(wish, context, endings)
        if isinstance(ready, Outcome):
            return ready
        if _is_cancelled_already(ready.call, context):
            outcome = endings.cancelled_already(ready.call)
            self._refuse(context, outcome)
            return outcome
        ruling = doubted(await self._policy.judge(ready.call, context), context)
        ruling = await self._with_grant(ready.call, ruling)
        self._tell(context, CallRuled, tool=ready.call.tool, verdict=ruling.verdict, reason=ruling.reason,
                   rule=ruling.rule)  # fmt: skip
        if context.dry_run:
            denied = ruling.verdict is Verdict.DENY
            wrong = None if denied else await self._infeasible(ready.call, endings)
            return wrong or endings.dry_run(ready.call, ruling)
        run = partial(self._run, ready, context, ruling, endings, passage)
        if context.idempotency_key is None or ruling.verdict is Verdict.DENY:
            return await run()
        outcome = await self._keyed.once(ready.call, context, endings, run)
        if (first := outcome.metadata.get("replayed")) is not None:
            assert isinstance(first, Mapping)
            self._tell(context, CallReplayed, tool=outcome.tool, first_call_id=first["call_id"])
        return outcome

    async def _run(
        self, ready: Ready, context: CallContext, ruling: Ruling, endings: Endings, passage: Passage | None
    ) -> Outcome:
        """The call, as far as it is permitted."""
        leave = await self._leave(ready.call, context, ruling, passage)
        if leave is None:
            return await self._without_leave(ready.call, context, ruling, endings, passage)
        if ruling.exact:
            self._granted[context.call_id] = ready.call
        try:
            execution = await self._execute(ready, leave, context, passage)
        finally:
            self._granted.pop(context.call_id, None)
        if execution.error is None and execution.result is not None and awaits_input(execution.result):
            if ruling.verdict is Verdict.ASK:
                self._rounds.keep(ready.call, context, execution.result, leave)
            return endings.asks_for_input(execution, ready.call)
        if (awaited := await self._awaited(execution)) is not None:
            return endings.undecided(awaited)
        return await self._finish(execution, ready, context, endings)

    # -- from words to a call -----------------------------------------------------------------------

    def _prepare(self, wish: ToolCall, context: CallContext, endings: Endings) -> Ready | Outcome:
        found = self._find(wish, context.scopes, context.profile)
        if isinstance(found, NotFound):
            outcome = self._not_there(wish, found, context, endings)
            self._refuse(context, outcome)
            return outcome
        repair = self._settings.flags.argument_repair
        made = prepared(found.card, found.arguments, self._servers.precheck, repair=repair)
        if made.errors:
            outcome = endings.invalid(found.card.key, made.errors, made.repairs, made.signature)
            self._refuse(context, outcome)
            return outcome
        call = call_of(found.card, made.arguments, made.repairs)
        self._running[context.call_id] = call.tool
        self._tell(context, CallPrepared, tool=call.tool, operation=call.operation, arguments=call.arguments,
                   fingerprint=call.fingerprint, repairs=call.repairs)  # fmt: skip
        return Ready(call, found.card)

    def _seen_by(self, scopes: tuple[Scope, ...], profile: str | None) -> Snapshot:
        """The tools within these bounds. What lies outside has no name here, not even as "did you mean"."""
        seen = self._catalog.seen_with(scopes)
        bounds = tuple(scope for scope in bounded_by(scopes, profile, self._bounds) if scope.bounded)
        if not bounds:
            return seen
        known, made = self._bounded.get(bounds, (None, None))
        if known is seen and made is not None:
            return made
        cards = tuple(
            card
            for card in seen.cards
            if any(within(bounds, card.server, card.key, effect) for effect in card.effects)
        )
        made = Snapshot(version=seen.version, cards=cards)
        if len(self._bounded) >= MOST_BOUNDED:
            self._bounded.clear()
        self._bounded[bounds] = (seen, made)
        return made

    def _not_there(self, wish: ToolCall, missed: NotFound, context: CallContext, endings: Endings) -> Outcome:
        if not missed.ambiguous and (away := self.away(wish, context)) is not None:
            return endings.away(away)
        return endings.not_found(missed.near, ambiguous=missed.ambiguous)

    def away(self, wish: ToolCall, context: CallContext) -> Absence | None:
        """Why what this call means is known and not to be had now.

        None where it is not known, or where this caller could not use it if it were there.
        """
        away = absent(wish, self._catalog, self._servers.statuses)
        if away is None:
            return None
        scopes = bounded_by(context.scopes, context.profile, self._bounds)
        card = self._catalog.away.get(away.tool)
        rules, caller, profile = self._rules, context.caller, context.profile
        if card is not None:
            theirs = not hidden_tools(rules, (card,), caller=caller, profile=profile, scopes=scopes)
        else:  # nobody has seen its definition
            reached = any(within(scopes, away.server, away.tool, one) for one in away.effects)
            theirs = reached and may_have_any(rules, away.server, caller=caller, profile=profile)
        return away if theirs else None

    def _assure(self, call: Call) -> None:
        """Just before it is sent: the tool is still the one that was looked at, judged and approved.

        A call may have waited for a person, or for its server, which came back with something else.
        """
        card = self._catalog.whole.get(call.tool)
        if card is not None and card.fingerprint == (call.definition_fingerprint or card.fingerprint):
            return
        wish = ToolCall(name=call.tool, arguments={})
        if card is None and (gone := absent(wish, self._catalog, self._servers.statuses)) is not None:
            raise CallError(gone.told, hint=gone.fix)
        what = "changed" if card is not None else "was taken away"
        message = f"{call.tool} {what} while this call waited; it was not called"
        raise CallError(message, hint="Look at the tool as it is now, then make the call again.")

    def check(self, wish: ToolCall, scopes: Sequence[Scope] = (), *, profile: str | None = None) -> Checked:
        """What would become of the call's name and arguments. Nothing runs, nobody is asked or told."""
        repair = self._settings.flags.argument_repair
        return check(wish, self._seen_by(tuple(scopes), profile), self._servers.precheck, repair=repair)

    def _find(self, wish: ToolCall, scopes: tuple[Scope, ...], profile: str | None) -> Resolved | NotFound:
        """The tool that is meant. One outside of the bounds only by its very key or exposed name.

        Who knows that much is told that they may not use it; nobody learns it from a guess.
        """
        found = resolve(wish, self._seen_by(scopes, profile))
        if isinstance(found, Resolved):
            return found
        seen = self._catalog.seen_with(scopes)
        named = seen.get(wish.name) or seen.by_exposed_name(wish.name)
        return found if named is None else Resolved(card=named, arguments=wish.arguments)

    async def _infeasible(self, call: Call, endings: Endings) -> Outcome | None:
        """How the call would fail now, where its server is ours and can tell: no person is asked for that."""
        precheck = self._servers.precheck(call.server)
        fault = None if precheck is None else await precheck.check_feasible(call.name, call.arguments)
        if fault is None:
            return None
        outcome = endings.infeasible(call, fault)
        self._refuse(endings.context, outcome)
        return outcome

    def asks_approval(self, card: ToolCard, context: CallContext) -> bool:
        """Whether a call of this tool waits for a person, as far as that is known without its arguments."""
        ruling = self._policy.decide(call_of(card, {}, ()), context, Placement.NONE)
        return ruling.verdict is Verdict.ASK

    async def _with_grant(self, call: Call, ruling: Ruling) -> Ruling:
        """The ruling, unless the server itself wants a person's grant for this very call."""
        precheck = self._servers.precheck(call.server)
        if precheck is None or ruling.verdict is Verdict.DENY:
            return ruling
        reason = await precheck.needs_grant(call.name, call.arguments)
        if not reason:
            return ruling
        return Ruling(verdict=Verdict.ASK, reason=reason, rule=f"{call.server} itself", exact=True)

    def is_granted(self, call_id: str, name: str, arguments: JsonObject) -> bool:
        """Whether a person granted this very call, which is under way."""
        call = self._granted.get(call_id)
        return call is not None and (call.name, call.arguments) == (name, arguments)

    # -- permission ---------------------------------------------------------------------------------

    async def _leave(
        self, call: Call, context: CallContext, ruling: Ruling, passage: Passage | None = None
    ) -> Permit | None:
        if ruling.verdict is Verdict.ASK:
            self._events.flush()  # approvals tell at once
            # Who allowed a call allowed all of its rounds.
            begun = self._rounds.take(call, context, passage)
            if begun is not None:
                return begun
            return await self.approvals.spend(call, context, exact=ruling.exact)
        return permit(call, ruling)

    async def _without_leave(
        self, call: Call, context: CallContext, ruling: Ruling, endings: Endings, passage: Passage | None
    ) -> Outcome:
        if ruling.verdict is Verdict.DENY:
            outcome = endings.denied(call, ruling)
            self._refuse(context, outcome)
            return outcome
        if (word := await self.approvals.news(call, context)) is not None:
            if word.edited_arguments is None:
                return endings.undecided(word)
            edited = ToolCall(name=word.tool, arguments=word.edited_arguments)
            # The grant is for that one; a key is held already, for the call as it was asked.
            return await self._go(edited, replace(context, idempotency_key=None), endings, passage)
        if (outcome := await self._infeasible(call, endings)) is not None:
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
        if edited_arguments is not None and (pending := await self.approvals.get(pending_id)) is not None:
            edited = await self.edited(pending, edited_arguments)
        scope = "conversation" if for_conversation else "once"
        return await self.approvals.decide(
            pending_id, decision, by=by, reason=reason, edited=edited, scope=scope
        )

    async def edited(self, pending: Pending, arguments: JsonObject) -> Call:
        """The waiting call as a person wants it, which may do something else to the world.

        Raises `CallError`.
        """
        card = self._catalog.whole.get(pending.tool)
        if card is None:
            message = f"{pending.pending_id} cannot be edited: its tool is not available now"
            raise CallError(message, hint="approve or reject it as it is")
        prechecks, repair = self._servers.precheck, self._settings.flags.argument_repair
        edited = edited_call(card, pending, arguments, prechecks, repair=repair)
        precheck = prechecks(edited.server)
        fault = None if precheck is None else await precheck.check_feasible(edited.name, edited.arguments)
        if fault is not None:
            raise CallError(
                fault.message, hint="nothing was decided; correct the arguments, or reject the call"
            )
        return edited

    async def resume(self, pending_id: str, context: CallContext, passage: Passage | None = None) -> Outcome:
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
            asker=pending.asker,
            packet_id=pending.packet_id or context.packet_id,
            cancelled=(),  # the person decided about this very call
            scopes=self._scopes_to_resume(pending, context),
            # What a person edited is another call than the one the key was given for.
            idempotency_key=pending.idempotency_key if pending.edited_arguments is None else None,
            doubt=pending.reason,  # what one was asked about runs by the grant, whatever the rules say now
        )
        await self.approvals.heard(pending)
        if pending.decision is not Decision.APPROVED:
            return Endings(wish, context).undecided(pending)
        if await self._ended_in_the_dark(context):
            return Endings(wish, context).unknown(pending)
        return await self.call(wish, context, passage)

    def _scopes_to_resume(self, pending: Pending, context: CallContext) -> tuple[Scope, ...]:
        """A tool listed to its caller's own key alone is still there for the call they made with it."""
        card = self._catalog.whole.get(pending.tool)
        if card is None or not card.personal:
            return context.scopes
        return (*context.scopes, Scope(personal=(pending.tool,)))

    async def _ended_in_the_dark(self, context: CallContext) -> bool:
        """Whether an attempt of this call began and nobody knows how it ended.

        The process died under it, or was stopped, or whoever waited for it left. One that began a moment
        ago may be at work in another process: its end is waited for.
        """
        if context.call_id in self._running:
            return False
        while True:
            told = await self._attempts(context)
            begun = max((attempt.at for attempt in unfinished_attempts(told)), default=None)
            if begun is None:
                return _ended_unknown(told)
            if utc_now() - begun > MOMENT:
                return True
            await anyio.sleep(LOOK_AGAIN_S)

    async def _attempts(self, context: CallContext) -> list[Event]:
        """What was recorded of the attempts of this call, in order."""
        recorded = await self._store.journal.events(
            packet_id=context.packet_id or context.call_id, kinds=("attempt_started", "attempt_finished")
        )
        events = [entry.event for entry in recorded]
        return [event for event in events if getattr(event, "call_id", None) == context.call_id]

    async def _awaited(self, execution: Execution) -> Pending | None:
        """The waiting call that a tool of our own wants the person to be asked about."""
        meta = (execution.result or {}).get("_meta")
        awaited = meta.get(AWAITS) if isinstance(meta, Mapping) else None
        if not isinstance(awaited, str) or self._servers.precheck(execution.call.server) is None:
            return None
        return await self.approvals.get(awaited)

    # -- execution ----------------------------------------------------------------------------------

    async def _execute(
        self, ready: Ready, leave: Permit, context: CallContext, passage: Passage | None
    ) -> Execution:
        if passage is None and context.authorization is not None:
            passage = Passage(authorization=context.authorization)
        with Progress(ready.card, ready.call.arguments, context, events=self._events) as progress:
            return await self.runner.run(
                ready.call,
                leave,
                context,
                latency=ready.card.intelligence.latency,
                alternatives=self._alternatives,
                before_fallback=self._connect_for_fallback,
                permitting=lambda call: self._permit_fallback(call, context),
                latency_of=self._latency,
                on_progress=progress.report,
                passage=passage,
            )

    async def _connect_for_fallback(self, call: Call) -> None:
        """Connect servers that nothing has needed so far, where they may have a tool that could take over.

        However its name was written, a call falls back to the same tools.
        """
        card = self._catalog.whole.get(call.tool)
        if card is None or not may_have_more_fallbacks(card):
            return
        idle = [status.name for status in self._servers.statuses if status.state is ServerState.IDLE]
        if idle:
            self._servers.start(*idle)
            await self._servers.settled(timeout=FALLBACK_SERVERS_S)

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
                    yield call_of(target, made.arguments, made.repairs)

    def _latency(self, call: Call) -> LatencyProfile | None:
        card = self._catalog.whole.get(call.tool)
        return None if card is None else card.intelligence.latency

    async def _permit_fallback(self, call: Call, context: CallContext) -> Permit | None:
        """A fallback is judged like any call, but nobody is asked for it."""
        if _is_cancelled_already(call, context):
            return None
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
        card = self._catalog.whole.get(execution.call.tool) or ready.card
        cut = await fitted(execution.result, card, context, self._settings)
        kept = await self._keep(execution.result, cut, context)
        if not kept:
            cut = await fitted(execution.result, card, context, self._settings, kept=False)
        self._tell(context, ResultDigested, tokens=cut.tokens, original_tokens=cut.original_tokens,
                   dropped=cut.dropped, handle=cut.handle)  # fmt: skip
        self._note_usage(execution, tokens=cut.original_tokens)
        return endings.answered(execution, ready.call, cut, kept=kept)

    async def _keep(self, result: JsonObject, cut: Digest, context: CallContext) -> bool:
        """Keep what was cut, where anything was. False: the store failed; the call ran all the same."""
        if cut.handle is None:
            return True
        try:
            await self.results.keep(context.call_id, result, caller=context.caller)
        except StoreError as error:
            logger.warning("the result of %s could not be kept: %s", context.call_id, error)
            return False
        return True

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

    def _tell_received(self, wish: ToolCall, context: CallContext) -> None:
        self._tell(context, CallReceived, name=wish.name, arguments=wish.arguments, caller=context.caller,
                   conversation=context.conversation, dry_run=context.dry_run,
                   idempotency_key=context.idempotency_key,
                   instance=self._instance if context.packet_id is None else None)  # fmt: skip

    def _refuse(self, context: CallContext, outcome: Outcome) -> None:
        assert outcome.error is not None
        self._tell(context, CallRefused, error=outcome.error, reason=outcome.content,
                   parameter_errors=outcome.parameter_errors)  # fmt: skip

    def _tell_end(self, context: CallContext, outcome: Outcome, began: float) -> None:
        milliseconds = (time.monotonic() - began) * 1000
        self._tell(context, CallFinished, tool=outcome.tool, success=outcome.success, error=outcome.error,
                   detail=outcome.detail, milliseconds=milliseconds)  # fmt: skip

    def _tell(self, context: CallContext, kind: type[CallEvent], **facts: Any) -> None:
        packet_id = context.packet_id or context.call_id
        self._events.tell(kind, call_id=context.call_id, packet_id=packet_id, **facts)

    async def _write_down(self, event: Event) -> None:
        """Returns when this is on disk, behind what happened before."""
        self._events.flush()
        await self._store.journal.append(event)


def _is_cancelled_already(call: Call, context: CallContext) -> bool:
    """Whether the call would do what a person did not allow in this request, perhaps another way."""
    changes = call.effect is not Effect.READ
    return bool(context.cancelled) and (changes or call.tool in context.cancelled)


def _ended_unknown(told: Sequence[Event]) -> bool:
    """Whether the latest attempt ended without anybody knowing whether it took effect."""
    ended = [event.attempt for event in told if isinstance(event, AttemptFinished)]
    return bool(ended) and ended[-1].error is ErrorKind.UNKNOWN
