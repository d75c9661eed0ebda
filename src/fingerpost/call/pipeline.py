"""The call pipeline: name, arguments, policy, permit, execution, digest."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import TaskGroup

from fingerpost.call.approvals import CallApprovals, RoundPermits
from fingerpost.call.arguments import translate_arguments
from fingerpost.call.build import (
    CheckedCall,
    ResolvedTool,
    ToolNotFound,
    build_call,
    build_edited_call,
    check_call,
    compute_call_fingerprint,
    find_absence,
    prepare_call_arguments,
    resolve_tool,
)
from fingerpost.call.digest import ResultStore, build_fitted_digest, find_injection_signs
from fingerpost.call.execution import CallRun, CallRunner, ParallelJob, is_input_required, run_in_parallel
from fingerpost.call.inflight import IdempotentCalls, InFlightWork, find_key_problem
from fingerpost.call.outcomes import READ_RESULT_TOOL_NAME, OutcomeBuilder, run_read_result
from fingerpost.call.progress import CallProgress
from fingerpost.call.quotas import Quotas
from fingerpost.catalog import Catalog, Snapshot, UnavailableTool
from fingerpost.catalog.pins import find_differences
from fingerpost.catalog.snapshot import may_have_more_fallbacks
from fingerpost.errors import CallError, FingerpostError, LimitReached, ServerUnavailable, StoreError
from fingerpost.events import (
    AttemptFinished,
    CallEvent,
    CallFinished,
    CallPrepared,
    CallReceived,
    CallRefused,
    CallReplayed,
    CallRuled,
    DeferredRecorder,
    Event,
    EventSink,
    ResultDigested,
    ResultMarked,
    find_unfinished_attempts,
)
from fingerpost.frozen import frozen
from fingerpost.policy.addresses import OwnAddresses
from fingerpost.policy.flow import CallData, DataLabels, DataTrails, explain_data
from fingerpost.policy.paths import PathPlacement
from fingerpost.policy.rules import (
    PolicyEngine,
    PolicyRule,
    add_profile_scope,
    apply_doubt,
    build_permit,
    is_within_scopes,
)
from fingerpost.policy.visibility import find_hidden_tools, may_call_any
from fingerpost.records import (
    LOCAL_NAME,
    Call,
    CallContext,
    DataLabel,
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
from fingerpost.schemas.validator import load_validator
from fingerpost.servers import ServerPool
from fingerpost.servers.requests import PENDING_META_KEY, RequestContext
from fingerpost.settings import RuleSettings, Settings
from fingerpost.tasks import run_in_thread

if TYPE_CHECKING:
    from fingerpost.store import Store

logger = logging.getLogger("fingerpost.call")

CALLER_GAVE_UP = "the caller stopped waiting for the call"

MAX_BOUNDED_SNAPSHOTS: Final = 100  # cached snapshots by scopes
RECENT_ATTEMPT: Final = timedelta(seconds=2)
ATTEMPT_POLL_INTERVAL_S: Final = 0.05
MAX_DIFFERENCES: Final = 5  # of a changed definition, in an error
FALLBACK_CONNECT_TIMEOUT_S: Final = 10.0  # for servers of fallback tools to connect
MAX_INSPECTED_INLINE: Final = 8_000  # characters; longer results are inspected in a thread


@frozen(kw_only=False)
class PreparedCall:
    """A call that is ready for the policy, with its card."""

    call: Call
    card: ToolCard


@frozen(kw_only=False)
class JudgedCall:
    """A ruling, and what is known of the data of the call."""

    ruling: Ruling
    data: CallData


class CallPipeline:
    """Runs calls for every surface."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        servers: ServerPool,
        store: Store,
        settings: Settings,
        events: EventSink,
        tasks: TaskGroup,
        bounds: Mapping[str, Scope] | None = None,
        instance: str | None = None,
        extra_rules: Sequence[PolicyRule] = (),
        quotas: Quotas | None = None,
        find_user: Callable[[str], str] = str,
    ) -> None:
        """`tasks` must be exited after `in_flight.end_all`: calls with an idempotency key outlive their
        callers. `extra_rules` are rules in code; `find_user` returns the user behind a caller of this name.
        """
        self._find_user = find_user
        self._extra_rules = extra_rules
        self._catalog = catalog
        self._instance = instance
        self._quotas = quotas
        self._servers = servers
        self._store = store
        self._settings = settings
        self._events = DeferredRecorder(events)
        store.journal.add_pending_source(self._events.flush_in_own_thread)
        gateway = settings.gateway
        self.data_trails = DataTrails(store.data_flow, settings.call.data_flow)
        self.addresses = OwnAddresses(port=gateway.port, public_url=gateway.public_url)
        self.use_rules(settings.policy, bounds or {})
        self._running: dict[str, str] = {}  # the tool of every running call, by call id
        self._contexts: dict[str, CallContext] = {}  # and its context
        self._granted: dict[str, Call] = {}  # running calls that a person granted
        self.in_flight = InFlightWork()
        self._rounds = RoundPermits()
        self._scoped_snapshots: dict[tuple[Scope, ...], tuple[Snapshot, Snapshot]] = {}  # snapshots by scopes
        self._idempotent_calls = IdempotentCalls(
            store.idempotency, tasks, self.in_flight, seconds=settings.call.idempotency_seconds
        )
        self.results = ResultStore(store.cache, keep_seconds=settings.digest.keep_seconds)
        self.approvals = CallApprovals(store, events=events, settings=settings.call)
        self.runner = CallRunner(
            servers,
            settings=settings.call,
            flags=settings.flags,
            events=self._events,
            journal=self._append_to_journal,
            hurry=store.journal.hurry,
            check_tool=self._check_unchanged,
            announce_write=servers.announce_write,
            unbounded=settings.builtin.enabled,
        )

    def use_rules(self, rules: Sequence[RuleSettings], bounds: Mapping[str, Scope]) -> None:
        """Apply these rules from the next call on. `bounds` are the scopes of profiles."""
        self._rules, self._bounds = rules, bounds
        self._policy = PolicyEngine(
            rules,
            bounds=bounds,
            addresses=self.addresses,
            local_addresses=self._settings.call.local_addresses,
            extra_rules=self._extra_rules,
            data_flow=self._settings.call.data_flow,
        )

    async def call(
        self, tool_call: ToolCall, context: CallContext, request_context: RequestContext | None = None
    ) -> Outcome:
        """Run a tool call, subject to the policy and a person's approval.

        `request_context` holds data exchanged between the caller and the server beside the call.
        """
        async with self.in_flight.track():
            try:
                if context.idempotency_key is None:
                    return await self._call(tool_call, context, request_context)
                return await self._idempotent_calls.run_to_end(
                    partial(self._call, tool_call, context, request_context)
                )
            finally:
                if request_context is None:  # a proxy sends the response first
                    self._events.flush()

    async def _call(
        self, tool_call: ToolCall, context: CallContext, request_context: RequestContext | None
    ) -> Outcome:
        began = time.monotonic()
        outcomes = OutcomeBuilder(tool_call, context)
        self._running[context.call_id] = tool_call.name
        self._contexts[context.call_id] = context
        self._emit_received(tool_call, context)
        try:
            # A surface counts calls that are not part of a request.
            if self._quotas is not None and context.packet_id is not None:
                await self._quotas.take_call(context.caller, context.profile)
            outcome = await self._run_steps(tool_call, context, outcomes, request_context)
        except (StoreError, LimitReached) as error:  # a call that needs a record does not run without one
            outcome = outcomes.build_failure(
                tool_call.name, ErrorKind.UNAVAILABLE, str(error), fix=error.hint or ""
            )
        except FingerpostError:
            raise
        except Exception as error:
            logger.exception("%s failed inside of Fingerpost", context.call_id)
            outcome = self._build_internal_failure(tool_call, context, outcomes, error)
        except anyio.get_cancelled_exc_class():  # the attempt's own event records its end
            tool = self._running.get(context.call_id, tool_call.name)
            gone = outcomes.build_failure(tool, ErrorKind.CANCELLED, CALLER_GAVE_UP, detail=CALLER_GAVE_UP)
            self._emit_finished(context, gone, began)
            raise
        finally:
            self._running.pop(context.call_id, None)
            self._contexts.pop(context.call_id, None)
        self._emit_finished(context, outcome, began)
        return outcome

    def _build_internal_failure(
        self, tool_call: ToolCall, context: CallContext, outcomes: OutcomeBuilder, error: Exception
    ) -> Outcome:
        """Build the outcome of an internal error. The call may have been sent."""
        tool = self._running.get(context.call_id, tool_call.name)
        card = self._catalog.full_snapshot.get(tool)
        reads = card is None or card.effect_of(None) is Effect.READ
        kind = ErrorKind.EXECUTION_FAILED if reads else ErrorKind.UNKNOWN
        message = f"internal error in Fingerpost ({type(error).__name__}); see its log"
        content = f"{tool}: {message}"
        return outcomes.build_failure(tool, kind, content, detail=content)

    def record_unknown(self, tool_call: ToolCall, missed: ToolNotFound, context: CallContext) -> Outcome:
        """Record a call of a tool that this caller does not have, and return its outcome. Nothing runs."""
        began = time.monotonic()
        # The figures of calls leave out what could not run.
        self._emit_received(tool_call, replace(context, dry_run=True))
        outcome = self._build_not_found(tool_call, missed, context, OutcomeBuilder(tool_call, context))
        self._emit_refused(context, outcome)
        self._emit_finished(context, outcome, began)
        return outcome

    def get_context(self, call_id: str) -> CallContext | None:
        """Return the context of a running call. Built-in servers use it to act for the same caller."""
        return self._contexts.get(call_id)

    async def call_many(self, tool_calls: Sequence[tuple[ToolCall, CallContext]]) -> tuple[Outcome, ...]:
        """Run independent calls in parallel and return outcomes in order. Writes to one server run in
        sequence.

        A repeated write is refused: it is more likely a mistake of the model than intended.
        """
        jobs: list[ParallelJob[Outcome]] = []
        writes: set[str] = set()
        for tool_call, context in tool_calls:
            card, arguments, effect = self._resolve_for_batch(tool_call, context)
            write = compute_call_fingerprint("", card.key, arguments) if card is not None else None
            if write is not None and effect is not Effect.READ and write in writes:
                jobs.append(ParallelJob("", Effect.READ, partial(self._refuse_repeated, tool_call, context)))
                continue
            if write is not None:
                writes.add(write)
            server = "" if card is None else card.server  # a call without a known tool waits for no other
            jobs.append(ParallelJob(server, effect, partial(self.call, tool_call, context)))
        return await run_in_parallel(jobs)

    def _resolve_for_batch(
        self, tool_call: ToolCall, context: CallContext
    ) -> tuple[ToolCard | None, JsonObject, Effect]:
        found = resolve_tool(tool_call, self._catalog.get_snapshot_for(context.scopes))
        if isinstance(found, ToolNotFound):
            return None, tool_call.arguments, Effect.READ
        operation = found.arguments.get("operation")
        named = operation if isinstance(operation, str) else None
        return found.card, found.arguments, found.card.effect_of(named)

    async def _refuse_repeated(self, tool_call: ToolCall, context: CallContext) -> Outcome:
        began = time.monotonic()
        self._emit_received(tool_call, context)
        outcome = OutcomeBuilder(tool_call, context).build_repeated()
        self._emit_refused(context, outcome)
        self._emit_finished(context, outcome, began)
        return outcome

    async def _run_steps(
        self,
        tool_call: ToolCall,
        context: CallContext,
        outcomes: OutcomeBuilder,
        request_context: RequestContext | None,
    ) -> Outcome:
        """Resolve the name, prepare the arguments, judge the call, permit it or ask, execute it, digest."""
        if (answer := await self._answer_without_tool(tool_call, context, outcomes)) is not None:
            return answer
        await load_validator()
        ready = self._prepare(tool_call, context, outcomes)
        if isinstance(ready, Outcome):
            return ready
        judged = await self._judge(ready.call, ready.card, context)
        ruling = judged.ruling
        if context.dry_run:
            return await self._preview(ready.call, ruling, outcomes)
        keyed = context if ruling.verdict is not Verdict.DENY else replace(context, idempotency_key=None)
        async with self._idempotent_calls.claim(ready.call, keyed, outcomes) as claim:
            if claim.outcome is not None:
                self._emit_replayed(context, claim.outcome)
                return await self._note_replay(ready.card, context, claim.outcome)
            permit = await self._find_permit(ready.call, context, ruling, request_context)
            if permit is None:
                claim.outcome = await self._refuse_or_ask(
                    ready.call, context, ruling, outcomes, request_context
                )
                return claim.outcome
            with (
                CallProgress(ready.card, ready.call.arguments, context, events=self._events) as progress,
                self._track_granted(ready.call, context, ruling),
            ):
                run = CallRun(
                    ready.call,
                    permit,
                    context,
                    latency=ready.card.intelligence.latency,
                    fallbacks=self,
                    on_progress=progress.report,
                    request_context=self._add_identity(request_context, context),
                )
                execution = await self.runner.run(run)
            outcome = await self._finish(execution, ready, permit, ruling, outcomes)
            claim.outcome = await self._note_data(execution, outcome, ready, judged.data, context)
            return claim.outcome

    def _add_identity(
        self, request_context: RequestContext | None, context: CallContext
    ) -> RequestContext | None:
        """Return the data beside the call, with the caller's own key and name where servers need them."""
        if request_context is None and context.authorization is not None:
            request_context = RequestContext(authorization=context.authorization)
        if self._servers.has_user_servers:
            return replace(
                request_context or RequestContext(), user=self._find_user(context.caller or LOCAL_NAME)
            )
        return request_context

    async def _answer_without_tool(
        self, tool_call: ToolCall, context: CallContext, outcomes: OutcomeBuilder
    ) -> Outcome | None:
        """Return the outcome of a call that needs no server's tool, else None."""
        if context.idempotency_key is not None and (problem := find_key_problem(context.idempotency_key)):
            return outcomes.build_bad_key(problem)
        if (
            tool_call.name == READ_RESULT_TOOL_NAME
            and self._catalog.snapshot.find(READ_RESULT_TOOL_NAME) is None
        ):
            return await self.read_result(tool_call, context)
        return None

    async def read_result(self, tool_call: ToolCall, context: CallContext) -> Outcome:
        """Return one page of a stored result, which counts as untrusted: it may be of any tool."""
        page = await run_read_result(self.results, tool_call, context)
        if not page.success:
            return page
        private = page.metadata.get("private") is True
        await self.data_trails.note_untrusted(READ_RESULT_TOOL_NAME, context, page.content, private=private)
        return await self._mark_result(page, context)

    def _prepare(
        self, tool_call: ToolCall, context: CallContext, outcomes: OutcomeBuilder
    ) -> PreparedCall | Outcome:
        found = self._find(tool_call, context.scopes, context.profile)
        if isinstance(found, ToolNotFound):
            outcome = self._build_not_found(tool_call, found, context, outcomes)
            self._emit_refused(context, outcome)
            return outcome
        repair = self._settings.flags.argument_repair
        made = prepare_call_arguments(found.card, found.arguments, self._servers.get_precheck, repair=repair)
        if made.errors:
            outcome = outcomes.build_invalid(found.card.key, made.errors, made.repairs, made.signature)
            self._emit_refused(context, outcome)
            return outcome
        call = build_call(found.card, made.arguments, made.repairs)
        self._running[context.call_id] = call.tool
        self._emit(context, CallPrepared, tool=call.tool, operation=call.operation, arguments=call.arguments,
                   fingerprint=call.fingerprint, repairs=call.repairs)  # fmt: skip
        if _is_cancelled_already(call, context):
            outcome = outcomes.build_cancelled(call)
            self._emit_refused(context, outcome)
            return outcome
        return PreparedCall(call, found.card)

    async def _judge(self, call: Call, card: ToolCard, context: CallContext) -> JudgedCall:
        data = await self.data_trails.describe(call, card, context)
        ruling = apply_doubt(await self._policy.judge(call, context, data), context)
        ruling = explain_data(await self._require_grant(call, ruling), data)
        self._emit(context, CallRuled, tool=call.tool, verdict=ruling.verdict, reason=ruling.reason,
                   rule=ruling.rule)  # fmt: skip
        return JudgedCall(ruling, data)

    async def _note_data(
        self,
        execution: Execution,
        outcome: Outcome,
        ready: PreparedCall,
        data: CallData,
        context: CallContext,
    ) -> Outcome:
        """Record what entered the conversation, and what was stored from it. Errors of tools count.

        The tool may be gone from the catalog by now, and a fallback has arguments of its own.
        """
        if not execution.attempts:
            return outcome
        call = execution.call
        card = self._find_answering_card(call.tool, ready.card)
        if call.tool != ready.card.key and card is not None:
            data = await self.data_trails.describe(call, card, context)
        labels = None if card is None else card.get_labels_of(call.effect)
        outcome = await self._note_result(call.tool, labels, context, outcome)
        await self.data_trails.note_write(call, data)
        return outcome

    async def _note_result(
        self, tool: str, labels: DataLabels | None, context: CallContext, outcome: Outcome
    ) -> Outcome:
        outcome = await self._mark_result(outcome, context)
        await self._note_text(tool, labels, context, outcome.content, marked=bool(outcome.warnings))
        return outcome

    async def _note_replay(self, called: ToolCard, context: CallContext, outcome: Outcome) -> Outcome:
        """Record the result of an earlier call with the same key. Other outcomes hold no data of a tool."""
        if "replayed" not in outcome.metadata:
            return outcome
        card = self._find_answering_card(outcome.tool, called)
        labels = None if card is None else card.labels
        return await self._note_result(outcome.tool, labels, context, outcome)

    def _find_answering_card(self, tool: str, called: ToolCard) -> ToolCard | None:
        """Return the card of the tool that answered; None if that is a fallback which is gone by now."""
        return called if tool == called.key else self._catalog.full_snapshot.get(tool)

    async def _note_text(
        self, tool: str, labels: DataLabels | None, context: CallContext, text: str, *, marked: bool
    ) -> None:
        """Record a text that a tool gave. `labels` are None if its tool is gone."""
        if labels is None:
            await self.data_trails.note_untrusted(tool, context, text, private=True)
        else:
            await self.data_trails.note_result(tool, labels, context, text, marked=marked)

    async def note_shared_result(self, tool: str, context: CallContext, text: str) -> None:
        """Record a result that another request of the caller got, and that this one gets, too."""
        marked = bool(await self._find_signs(text, context))
        card = self._catalog.full_snapshot.get(tool)
        labels = None if card is None else card.labels
        await self._note_text(tool, labels, context, text, marked=marked)

    async def _mark_result(self, outcome: Outcome, context: CallContext) -> Outcome:
        """Return the outcome with warnings, if its content addresses the model. Nothing is removed."""
        if not (signs := await self._find_signs(outcome.content, context)):
            return outcome
        self._emit(context, ResultMarked, tool=outcome.tool, signs=signs)
        return replace(outcome, warnings=signs)

    async def _find_signs(self, text: str, context: CallContext) -> tuple[str, ...]:
        if self.data_trails.preset == "off" and context.packet_id is None:
            return ()
        if len(text) > MAX_INSPECTED_INLINE:
            return await run_in_thread(find_injection_signs, text)
        return find_injection_signs(text)

    async def note_material(
        self, server: str, method: str, name: str, text: str, context: CallContext
    ) -> tuple[str, ...]:
        """Record a resource or prompt that a client is about to get as a source of its conversation. Return
        what in it addresses the model.
        """
        signs = await self._find_signs(text, context)
        labels = self._catalog.get_material_labels(server, method, name)
        source = f"{server}/{method}"
        await self.data_trails.note_result(source, labels, context, text, marked=bool(signs))
        return signs

    async def _preview(self, call: Call, ruling: Ruling, outcomes: OutcomeBuilder) -> Outcome:
        """Return what would happen to the call. Nothing runs."""
        denied = ruling.verdict is Verdict.DENY
        wrong = None if denied else await self._find_infeasible(call, outcomes)
        return wrong or outcomes.build_dry_run(call, ruling)

    @contextmanager
    def _track_granted(self, call: Call, context: CallContext, ruling: Ruling) -> Generator[None]:
        """Let the call's server see that a person granted exactly this call, while it runs."""
        if ruling.exact:
            self._granted[context.call_id] = call
        try:
            yield
        finally:
            self._granted.pop(context.call_id, None)

    def _get_visible(self, scopes: tuple[Scope, ...], profile: str | None) -> Snapshot:
        """Return the tools within these scopes. Other tools are not named, not even in suggestions."""
        seen = self._catalog.get_snapshot_for(scopes)
        bounds = tuple(scope for scope in add_profile_scope(scopes, profile, self._bounds) if scope.bounded)
        if not bounds:
            return seen
        known, made = self._scoped_snapshots.get(bounds, (None, None))
        if known is seen and made is not None:
            return made
        cards = tuple(
            card
            for card in seen.cards
            if any(is_within_scopes(bounds, card.server, card.key, effect) for effect in card.effects)
        )
        made = Snapshot(version=seen.version, cards=cards)
        if len(self._scoped_snapshots) >= MAX_BOUNDED_SNAPSHOTS:
            self._scoped_snapshots.clear()
        self._scoped_snapshots[bounds] = (seen, made)
        return made

    def _build_not_found(
        self, tool_call: ToolCall, missed: ToolNotFound, context: CallContext, outcomes: OutcomeBuilder
    ) -> Outcome:
        if not missed.ambiguous and (away := self.find_absence(tool_call, context)) is not None:
            return outcomes.build_unavailable(away)
        return outcomes.build_not_found(missed.near, ambiguous=missed.ambiguous)

    def find_absence(self, tool_call: ToolCall, context: CallContext) -> UnavailableTool | None:
        """Return why the call's tool is known but not available now.

        Return None if it is unknown, or if this caller could not use it anyway.
        """
        absence = find_absence(tool_call, self._catalog, self._servers.statuses)
        if absence is None:
            return None
        scopes = add_profile_scope(context.scopes, context.profile, self._bounds)
        card = self._catalog.unavailable.get(absence.tool)
        rules, caller, profile = self._rules, context.caller, context.profile
        if card is not None:
            permitted = not find_hidden_tools(rules, (card,), caller=caller, profile=profile, scopes=scopes)
        else:  # its definition was never seen
            reached = any(
                is_within_scopes(scopes, absence.server, absence.tool, one) for one in absence.effects
            )
            permitted = reached and may_call_any(rules, absence.server, caller=caller, profile=profile)
        return absence if permitted else None

    def _check_unchanged(self, call: Call) -> None:
        """Raise if the tool has changed since the call was checked and approved. Runs just before sending.

        The call may have waited for a person or for its server, which may have reconnected with another
        definition.
        """
        card = self._catalog.full_snapshot.get(call.tool)
        if card is not None and card.fingerprint == (call.definition_fingerprint or card.fingerprint):
            return
        tool_call = ToolCall(name=call.tool, arguments={})
        if card is None and (reason := self._find_listing_fault(call.server)) is not None:
            message = f"{call.tool} was not called, since it may have changed: {call.server} is degraded"
            raise ServerUnavailable(f"{message}: {reason}", server=call.server)
        if (
            card is None
            and (gone := find_absence(tool_call, self._catalog, self._servers.statuses)) is not None
        ):
            raise CallError(f"{gone.message}{self._describe_change(call.tool)}", hint=gone.fix)
        what = "changed" if card is not None else "was removed"
        message = f"{call.tool} {what} while this call waited; it was not called"
        raise CallError(message, hint="Check the tool as it is now, then repeat the call.")

    def _find_listing_fault(self, server: str) -> str | None:
        """Return why nothing of a connected server is listed, if that is its fault."""
        status = next((one for one in self._servers.statuses if one.name == server), None)
        return status.reason if status is not None and status.lists_nothing else None

    def _describe_change(self, tool: str) -> str:
        """Return the parts of a changed definition that differ, as the end of a sentence."""
        entry = next((one for one in self._catalog.quarantined if one.card.key == tool), None)
        if entry is None or entry.new:
            return ""
        paths = [one.path for one in find_differences(entry.pin.definition, entry.card.definition)]
        more = f" and {len(paths) - MAX_DIFFERENCES} more" if len(paths) > MAX_DIFFERENCES else ""
        return f" ({', '.join(paths[:MAX_DIFFERENCES])}{more})"

    async def check(
        self, tool_call: ToolCall, scopes: Sequence[Scope] = (), *, profile: str | None = None
    ) -> CheckedCall:
        """Check the call's name and arguments. Nothing runs and no events are emitted."""
        await load_validator()
        repair = self._settings.flags.argument_repair
        return check_call(
            tool_call, self._get_visible(tuple(scopes), profile), self._servers.get_precheck, repair=repair
        )

    def _find(
        self, tool_call: ToolCall, scopes: tuple[Scope, ...], profile: str | None
    ) -> ResolvedTool | ToolNotFound:
        """Resolve the tool. A tool outside the scopes is found only by its exact key or exposed name.

        For such a tool the policy denies the call. Other tools outside the scopes are reported as not found.
        """
        found = resolve_tool(tool_call, self._get_visible(scopes, profile))
        if isinstance(found, ResolvedTool):
            return found
        seen = self._catalog.get_snapshot_for(scopes)
        named = seen.get(tool_call.name) or seen.by_exposed_name(tool_call.name)
        return found if named is None else ResolvedTool(card=named, arguments=tool_call.arguments)

    async def _find_infeasible(self, call: Call, outcomes: OutcomeBuilder) -> Outcome | None:
        """Return how the call would fail now, if its built-in server can tell. Then no person is asked."""
        precheck = self._servers.get_precheck(call.server)
        fault = None if precheck is None else await precheck.find_fault(call.name, call.arguments)
        if fault is None:
            return None
        outcome = outcomes.build_infeasible(call, fault)
        self._emit_refused(outcomes.context, outcome)
        return outcome

    def needs_approval(self, card: ToolCard, context: CallContext) -> bool:
        """Return whether a call of this tool needs approval, as far as known without its arguments."""
        ruling = self._policy.decide_by_rules(build_call(card, {}, ()), context, PathPlacement.NONE)
        return ruling.verdict is Verdict.ASK

    async def _require_grant(self, call: Call, ruling: Ruling) -> Ruling:
        """Return the ruling, or one that asks if the server itself requires a grant for exactly this call."""
        precheck = self._servers.get_precheck(call.server)
        if precheck is None or ruling.verdict is Verdict.DENY:
            return ruling
        reason = await precheck.get_grant_reason(call.name, call.arguments)
        if not reason:
            return ruling
        return Ruling(verdict=Verdict.ASK, reason=reason, rule=f"{call.server} itself", exact=True)

    def is_granted(self, call_id: str, name: str, arguments: JsonObject) -> bool:
        """Return whether a person granted exactly this running call."""
        call = self._granted.get(call_id)
        return call is not None and (call.name, call.arguments) == (name, arguments)

    async def _find_permit(
        self, call: Call, context: CallContext, ruling: Ruling, request_context: RequestContext | None = None
    ) -> Permit | None:
        if ruling.verdict is Verdict.ASK:
            self._events.flush()  # approvals are visible at once
            # A permit covers all rounds of a call.
            round_permit = self._rounds.take_permit(call, context, request_context)
            if round_permit is not None:
                return round_permit
            return await self.approvals.use_grant(call, context, exact=ruling.exact, told=ruling.told)
        return build_permit(call, ruling)

    async def _refuse_or_ask(
        self,
        call: Call,
        context: CallContext,
        ruling: Ruling,
        outcomes: OutcomeBuilder,
        request_context: RequestContext | None,
    ) -> Outcome:
        if ruling.verdict is Verdict.DENY:
            outcome = outcomes.build_denied(call, ruling)
            self._emit_refused(context, outcome)
            return outcome
        if (decided := await self.approvals.take_unreported_decision(call, context)) is not None:
            if decided.edited_arguments is None:
                return outcomes.build_not_approved(decided)
            edited = ToolCall(name=decided.tool, arguments=decided.edited_arguments)
            # The grant is for the edited call. The key is held already, for the original call.
            return await self._run_steps(
                edited, replace(context, idempotency_key=None), outcomes, request_context
            )
        if (outcome := await self._find_infeasible(call, outcomes)) is not None:
            return outcome
        pending = await self.approvals.request(call, context, ruling)
        return outcomes.build_waiting(call, pending)

    async def decide(
        self,
        pending_id: str,
        decision: Decision | str,
        *,
        by: str,
        reason: str | None = None,
        edited_arguments: JsonObject | None = None,
        for_conversation: bool = False,
    ) -> Pending:
        """Record a person's decision on a pending call. Edited arguments must fit the tool's schema."""
        if decision not in (Decision.APPROVED, Decision.REJECTED):
            message = f"a decision is approved or rejected, not {decision!r:.60}"
            raise CallError(message, hint='Write decide(pending_id, "approved", by=…).')
        decision = Decision(decision)
        edited = None
        if edited_arguments is not None and (pending := await self.approvals.get(pending_id)) is not None:
            edited = await self.build_edited_call(pending, edited_arguments)
        scope = "conversation" if for_conversation else "once"
        return await self.approvals.decide(
            pending_id, decision, by=by, reason=reason, edited=edited, scope=scope
        )

    async def build_edited_call(self, pending: Pending, arguments: JsonObject) -> Call:
        """Build the pending call with a person's edited arguments. Its effect may differ.

        Raises `CallError`.
        """
        card = self._catalog.full_snapshot.get(pending.tool)
        if card is None:
            message = f"{pending.pending_id} cannot be edited: its tool is not available now"
            raise CallError(message, hint="approve or reject it as it is")
        prechecks, repair = self._servers.get_precheck, self._settings.flags.argument_repair
        edited = build_edited_call(card, pending, arguments, prechecks, repair=repair)
        precheck = prechecks(edited.server)
        fault = None if precheck is None else await precheck.find_fault(edited.name, edited.arguments)
        if fault is not None:
            raise CallError(
                fault.message, hint="nothing was decided; correct the arguments, or reject the call"
            )
        return edited

    async def resume(
        self, pending_id: str, context: CallContext, request_context: RequestContext | None = None
    ) -> Outcome:
        """Continue a call that waited for a person: run it, or return why it is not run."""
        pending = await self.approvals.get(pending_id)
        if pending is None:
            message = f"no call waits under {pending_id}"
            raise CallError(message, hint="`fingerpost approvals` lists the waiting calls")
        arguments = pending.arguments if pending.edited_arguments is None else pending.edited_arguments
        tool_call = ToolCall(name=pending.tool, arguments=arguments)
        context = replace(
            context,
            call_id=pending.call_id or context.call_id,  # one trace for the question and its answer
            conversation=pending.conversation,
            caller=pending.caller,
            asker=pending.asker,
            packet_id=pending.packet_id or context.packet_id,
            cancelled=(),  # the person decided about exactly this call
            scopes=self._get_resume_scopes(pending, context),
            # An edited call is not the call for which the key was given.
            idempotency_key=pending.idempotency_key if pending.edited_arguments is None else None,
            doubt=pending.reason,  # a call that needed approval runs by its grant, whatever the rules say now
        )
        await self.approvals.mark_reported(pending)
        if pending.decision is not Decision.APPROVED:
            return OutcomeBuilder(tool_call, context).build_not_approved(pending)
        if await self._has_unknown_end(context):
            return OutcomeBuilder(tool_call, context).build_unknown(pending)
        return await self.call(tool_call, context, request_context)

    def _get_resume_scopes(self, pending: Pending, context: CallContext) -> tuple[Scope, ...]:
        """Return the scopes, including a tool that was listed only for the caller's own key."""
        card = self._catalog.full_snapshot.get(pending.tool)
        if card is None or not card.personal:
            return context.scopes
        return (*context.scopes, Scope(personal=(pending.tool,)))

    async def _has_unknown_end(self, context: CallContext) -> bool:
        """Return whether an attempt of this call started and its end is not known.

        Its process died or was stopped, or its caller was cancelled. A recent attempt may still run in
        another process, so its end is awaited.
        """
        if context.call_id in self._running:
            return False
        while True:
            events = await self._read_attempts(context)
            started_at = max((attempt.at for attempt in find_unfinished_attempts(events)), default=None)
            if started_at is None:
                return _is_last_end_unknown(events)
            if utc_now() - started_at > RECENT_ATTEMPT:
                return True
            await anyio.sleep(ATTEMPT_POLL_INTERVAL_S)

    async def _read_attempts(self, context: CallContext) -> list[Event]:
        """Return the recorded events of this call's attempts, in order."""
        recorded = await self._store.journal.list_events(
            packet_id=context.packet_id or context.call_id, kinds=("attempt_started", "attempt_finished")
        )
        events = [entry.event for entry in recorded]
        return [event for event in events if getattr(event, "call_id", None) == context.call_id]

    async def _find_awaited(self, execution: Execution) -> Pending | None:
        """Return the pending call for which a built-in tool asks a person."""
        meta = (execution.result or {}).get("_meta")
        awaited = meta.get(PENDING_META_KEY) if isinstance(meta, Mapping) else None
        if not isinstance(awaited, str) or self._servers.get_precheck(execution.call.server) is None:
            return None
        return await self.approvals.get(awaited)

    async def prepare_fallback(self, call: Call) -> None:
        """Connect idle servers that may have a fallback tool.

        The fallbacks of a call do not depend on how its name was written.
        """
        card = self._catalog.full_snapshot.get(call.tool)
        if card is None or not may_have_more_fallbacks(card):
            return
        idle = [status.name for status in self._servers.statuses if status.state is ServerState.IDLE]
        if idle:
            self._servers.start(*idle)
            await self._servers.wait_until_settled(timeout=FALLBACK_CONNECT_TIMEOUT_S)

    def find_alternatives(self, call: Call) -> Iterator[Call]:
        """Yield the call translated for each fallback tool, if its arguments can be translated."""
        snapshot = self._catalog.snapshot
        source = snapshot.get(call.tool)
        if source is None:
            return
        for key in source.intelligence.hierarchy.value:
            target = snapshot.find(key)
            if target is not None and target.key != call.tool:
                made = translate_arguments(call.arguments, source, target)
                if not made.errors:
                    yield build_call(target, made.arguments, made.repairs)

    def get_latency(self, call: Call) -> LatencyProfile | None:
        card = self._catalog.full_snapshot.get(call.tool)
        return None if card is None else card.intelligence.latency

    async def permit_fallback(self, call: Call, context: CallContext) -> Permit | None:
        """Apply the policy to a fallback. No person is asked for it."""
        if _is_cancelled_already(call, context):
            return None
        card = self._catalog.full_snapshot.get(call.tool)
        data = CallData() if card is None else await self.data_trails.describe(call, card, context)
        ruling = await self._policy.judge(call, context, data)
        return await self._find_permit(call, context, explain_data(ruling, data))

    async def _finish(
        self,
        execution: Execution,
        ready: PreparedCall,
        permit: Permit,
        ruling: Ruling,
        outcomes: OutcomeBuilder,
    ) -> Outcome:
        """Return the outcome: a question of the server, a failure, or the digested result."""
        context = outcomes.context
        if execution.error is None and execution.result is not None and is_input_required(execution.result):
            if ruling.verdict is Verdict.ASK:
                self._rounds.keep_permit(ready.call, context, execution.result, permit)
            return outcomes.build_input_required(execution, ready.call)
        if (awaited := await self._find_awaited(execution)) is not None:
            return outcomes.build_not_approved(awaited)
        if execution.result is None:
            self._note_usage(execution, tokens=0)
            outcome = outcomes.build_failed(execution, ready.call)
            if not execution.attempts:  # nothing was sent, for example because of a loop
                self._emit_refused(context, outcome)
            return outcome
        answering = self._find_answering_card(execution.call.tool, ready.card)
        card = answering or ready.card
        digest = await build_fitted_digest(execution.result, card, context, self._settings)
        private = answering is None or answering.has(DataLabel.PRIVATE)
        kept = await self._keep_result(execution.result, digest, context, private=private)
        if not kept:
            digest = await build_fitted_digest(execution.result, card, context, self._settings, kept=False)
        self._emit(context, ResultDigested, tokens=digest.tokens, original_tokens=digest.original_tokens,
                   dropped=digest.dropped, handle=digest.handle)  # fmt: skip
        self._note_usage(execution, tokens=digest.original_tokens)
        return outcomes.build_answered(execution, ready.call, digest, kept=kept)

    async def _keep_result(
        self, result: JsonObject, digest: Digest, context: CallContext, *, private: bool
    ) -> bool:
        """Store the full result if it was trimmed. Return False if the store failed; the call succeeded."""
        if digest.handle is None:
            return True
        try:
            await self.results.keep(context.call_id, result, caller=context.caller, private=private)
        except StoreError as error:
            logger.warning("the result of %s could not be kept: %s", context.call_id, error)
            return False
        return True

    def _note_usage(self, execution: Execution, *, tokens: int) -> None:
        for attempt in execution.attempts:
            if not attempt.cached and attempt.milliseconds > 0:
                self._store.usage.record_soon(
                    UsageSample(
                        tool=attempt.tool,
                        milliseconds=attempt.milliseconds,
                        tokens=tokens if attempt.error is None else 0,
                        success=attempt.error is None,
                        at=utc_now(),
                    )
                )

    def _emit_received(self, tool_call: ToolCall, context: CallContext) -> None:
        self._emit(context, CallReceived, name=tool_call.name, arguments=tool_call.arguments,
                   caller=context.caller,
                   conversation=context.conversation, dry_run=context.dry_run,
                   idempotency_key=context.idempotency_key,
                   instance=self._instance if context.packet_id is None else None)  # fmt: skip

    def _emit_replayed(self, context: CallContext, outcome: Outcome) -> None:
        if (first := outcome.metadata.get("replayed")) is not None:
            assert isinstance(first, Mapping)
            self._emit(context, CallReplayed, tool=outcome.tool, first_call_id=first["call_id"])

    def _emit_refused(self, context: CallContext, outcome: Outcome) -> None:
        assert outcome.error is not None
        self._emit(context, CallRefused, error=outcome.error, reason=outcome.content,
                   parameter_errors=outcome.parameter_errors)  # fmt: skip

    def _emit_finished(self, context: CallContext, outcome: Outcome, began: float) -> None:
        milliseconds = (time.monotonic() - began) * 1000
        self._emit(context, CallFinished, tool=outcome.tool, success=outcome.success, error=outcome.error,
                   detail=outcome.detail, milliseconds=milliseconds, dry_run=context.dry_run)  # fmt: skip

    def _emit(self, context: CallContext, kind: type[CallEvent], **facts: Any) -> None:
        packet_id = context.packet_id or context.call_id
        self._events.record(kind, call_id=context.call_id, packet_id=packet_id, **facts)

    async def _append_to_journal(self, event: Event) -> None:
        """Append the event after all earlier ones, and return when it is on disk."""
        self._events.flush()
        await self._store.journal.append(event)


def _is_cancelled_already(call: Call, context: CallContext) -> bool:
    """Return whether the call might do what a person rejected in this request, possibly in another way."""
    changes = call.effect is not Effect.READ
    return bool(context.cancelled) and (changes or call.tool in context.cancelled)


def _is_last_end_unknown(events: Sequence[Event]) -> bool:
    """Return whether it is unknown if the latest attempt took effect."""
    ended = [event.attempt for event in events if isinstance(event, AttemptFinished)]
    return bool(ended) and ended[-1].error is ErrorKind.UNKNOWN
