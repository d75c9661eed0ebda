"""The router: wires catalog, servers, store, narrowing, calls and answers together, and is what programs
use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

import anyio
import anyio.to_thread

from fingerpost.call.execution import BackgroundCalls, BreakerState
from fingerpost.call.outcomes import build_choice_sample
from fingerpost.call.pipeline import CallPipeline
from fingerpost.catalog import Catalog, Snapshot
from fingerpost.catalog.tool_names import build_tool_key
from fingerpost.errors import (
    CallError,
    ConfigError,
    ServerUnavailable,
    StoreError,
    UnknownServer,
    UnknownTool,
)
from fingerpost.events import EventSink, Fanout, LiveFeed, ProfilesChanged
from fingerpost.records import (
    Approval,
    CallContext,
    Effect,
    Effort,
    Feedback,
    FeedbackVerdict,
    JsonObject,
    Narrowing,
    Outcome,
    ParsedSelection,
    Pending,
    Pin,
    Principal,
    Scope,
    ServerSpec,
    ServerState,
    ServerStatus,
    ToolCall,
    ToolCard,
    check_json,
    create_id,
    utc_now,
)
from fingerpost.records.json import to_valid_json
from fingerpost.router.catalog_sync import CatalogSync, LazyConnector
from fingerpost.router.feedback import FeedbackService
from fingerpost.router.options import (
    CallOptions,
    ModelNames,
    NarrowOptions,
    RouteOptions,
    RuntimeSwitches,
    close_models,
    resolve_model_names,
)
from fingerpost.router.profiles import POLL_INTERVAL_S, Policy, Profiles, build_profile_rules, poll_profiles
from fingerpost.router.store_sync import PinSync, poll_store, renew_lease
from fingerpost.router.visibility import DisabledTools, VisibilityCache, VisibleCatalog
from fingerpost.servers import ServerPool, sign_in
from fingerpost.settings import ProfileFiles, Settings
from fingerpost.store import Store
from fingerpost.tasks import run_restarting

if TYPE_CHECKING:
    from fingerpost.llm import ChatModel, ModelPool
    from fingerpost.router.request_narrower import RequestNarrower
    from fingerpost.router.request_runner import RequestRunner
    from fingerpost.router.route import Route, StreamItem
    from fingerpost.servers.spec import FunctionServer


def check_json_object(arguments: object) -> None:
    """Raise where they are no JSON object. Half a character is let pass: calls with it are on record."""
    if not isinstance(arguments, Mapping):
        message = f"the arguments are a {type(arguments).__name__} and no object"
        raise CallError(message, hint="Pass a dict of names and values; {} where there are none.")
    given = cast("object", arguments)
    reason = check_json(given)
    if reason is None:
        return
    try:
        reason = check_json(to_valid_json(given))
    except ValueError as deep:
        reason = str(deep)
    if reason is not None:
        message = f"the arguments cannot be written as JSON: one {reason}"
        raise CallError(message, hint="Use texts, numbers, true, false, null, lists and dicts of these.")


log = logging.getLogger("fingerpost.router")

PERSONAL_LIST_TIMEOUT_S = 5.0  # a request waits so long for what servers list to its caller's own key
FIRST_CONNECT_TIMEOUT_S = 10.0  # a request waits so long for servers; whoever is later joins for the next one


class Router:
    """Everything Fingerpost knows and holds open, between `async with` and its end.

    Nothing connects until `connect` is called or a tool of that server is needed.
    """

    def __init__(
        self,
        servers: Iterable[ServerSpec] = (),
        *,
        settings: Settings | None = None,
        sinks: Iterable[EventSink] = (),
        model: ChatModel | None = None,
        lite: ChatModel | None = None,
        prime: ChatModel | None = None,
        policy: Policy | None = None,
    ) -> None:
        """`model` takes both roles where `lite` or `prime` is not given; `policy` comes before the rules.

        Models are closed together with the router.
        """
        settings = settings or Settings()
        given = () if policy is None else policy.rules
        self._rules = (given, settings.policy)  # before and behind those of profiles
        self.profiles = Profiles(settings.profiles, settings.plans)
        self.settings = settings = self._apply_profiles(settings)
        self.switches = RuntimeSwitches(settings)
        self._sight = VisibilityCache(settings.policy, self.profiles.bounds)
        self._models = (lite or model, prime or model)
        self._pool: ModelPool | None = None
        self._guide: RequestNarrower | None = None
        self._answerer: RequestRunner | None = None
        self._making_guide = anyio.Lock()
        self.live = LiveFeed()
        self.events = Fanout(self.live, *sinks)
        self.catalog = Catalog(
            events=self.events, overrides=settings.tools, flags=settings.flags, own=settings.builtin.enabled
        )
        self._specs = tuple(servers)
        self._functions: dict[str, FunctionServer] = {}  # what was registered at run time, by server
        self._stack = AsyncExitStack()
        self.instance = create_id("ins")  # this process, among others on the same store
        self._opened = False  # ever
        self._open = False

    async def __aenter__(self) -> Self:
        _check_event_loop()
        self._check_not_open()
        async with AsyncExitStack() as stack:
            self.store = await stack.enter_async_context(
                Store.open(
                    self.settings.store.url,
                    flush_ms=self.settings.store.flush_ms,
                    audit=self.settings.flags.audit,
                    anchors=self.settings.audit.anchors,
                    anchor_seconds=self.settings.audit.anchor_seconds,
                )
            )
            self._check_not_open()
            self._opened = True  # a store that could not be opened may be tried again
            self.events.add(self.store.journal)
            self.catalog.learn(await self.store.usage.get_profiles())
            self._intake = CatalogSync(self.catalog, self.store)
            trust = PinSync(store=self.store, catalog=self.catalog, intake=self._intake)
            await trust.refresh()
            # Before any task runs: a task group would wrap what is wrong with them.
            servers = ServerPool(
                self._specs,
                events=self.events,
                limits=self.settings.limits,
                tokens=self.store.tokens,
                on_listing=self._intake.prepare_listing,
            )
            stack.push_async_callback(self._intake.save_pins)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(run_restarting, self._intake.keep_saving)
            self.servers = await stack.enter_async_context(servers)
            self.calls = CallPipeline(
                catalog=self.catalog,
                servers=self.servers,
                store=self.store,
                settings=self.settings,
                events=self.events,
                tasks=tasks,
                bounds=self.profiles.bounds,
                instance=self.instance,
            )
            self._arrivals = LazyConnector(
                self.servers,
                self.calls,
                get_tools=lambda: self.tools,
                timeout=self._connect_timeout,
                request_timeout=FIRST_CONNECT_TIMEOUT_S,
            )
            self.shutters = DisabledTools(
                store=self.store, catalog=self.catalog, servers=self.servers, events=self.events
            )
            await self.shutters.refresh()
            await self._read_preferences()
            self.learning = FeedbackService(
                self.settings,
                self.store,
                self.events,
                find_visible=lambda caller, profile, scopes: self.look(
                    caller=caller, profile=profile, scopes=scopes
                ),
                tools=lambda: self.tools,
                on_changed=self._mark_learning_stale,
            )
            stack.callback(self.servers.subscribe_to_changes(self._apply_listing))
            stack.push_async_callback(self._close_narrower)
            self._tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(self._tasks.cancel_scope.cancel)
            self._tasks.start_soon(
                run_restarting, poll_store, self.shutters.refresh, trust.refresh, self._read_preferences
            )
            lease_s = self.settings.store.lease_seconds
            with suppress(StoreError):  # one that can only be read now serves what only reads
                await self.store.instances.renew_lease(self.instance, lease_s=lease_s)
            stack.push_async_callback(self._end_instance)
            self._tasks.start_soon(
                run_restarting, partial(renew_lease, self.store, self.instance, lease_s=lease_s)
            )
            stack.push_async_callback(self.calls.under_way.end_all)  # while everything is there to record it
            self.background = await stack.enter_async_context(BackgroundCalls[Outcome]())
            self._stack = stack.pop_all()
        self._open = True
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open = False
        # The caller's own error is none of our tasks' business: a task group would wrap it.
        cancelled = isinstance(exc, anyio.get_cancelled_exc_class())
        await self._stack.__aexit__(*((exc_type, exc, traceback) if cancelled else (None, None, None)))

    async def connect(self, *names: str, timeout: float | None = None) -> tuple[ServerStatus, ...]:
        """Connect these servers (all when none is named), side by side, and say how each is doing.

        Returns when every one has come up or failed, or when `timeout` seconds have
        passed; whoever is still connecting goes on doing so.
        """
        self._check_open()
        self.servers.start(*names)
        await self.servers.wait_until_settled(timeout=self._connect_timeout if timeout is None else timeout)
        return self.servers.statuses

    async def _end_instance(self) -> None:
        with suppress(StoreError):  # others find out by themselves
            await self.store.instances.end(self.instance)

    @property
    def _connect_timeout(self) -> float:
        """Each server is bounded by its own time-out; a little more lets the slowest report it."""
        return 5.0 + max((spec.connect_timeout for spec in self._specs), default=0.0)

    def _apply_profiles(self, settings: Settings) -> Settings:
        """The settings with the profiles as they are, and their rules in their place."""
        before, behind = self._rules
        rules = (*before, *build_profile_rules(self.profiles), *behind)
        return settings.model_copy(update={"policy": rules, "profiles": dict(self.profiles)})

    def follow_profiles(self, files: ProfileFiles, *, every: float = POLL_INTERVAL_S) -> None:
        """From now on, take up what changes in these files while we run."""
        self._check_open()
        reading = partial(poll_profiles, files, self.profiles, self._take_profiles, interval=every)
        self._tasks.start_soon(run_restarting, reading)

    def _take_profiles(self, changed: tuple[str, ...]) -> None:
        """Profiles changed: whoever is asked next is asked under the new ones."""
        profiles = self.profiles
        if changed:
            self.settings = self._apply_profiles(self.settings)
            self._sight.set_rules(self.settings.policy, profiles.bounds)
            self.calls.use_rules(self.settings.policy, profiles.bounds)
        for problem in profiles.problems:
            log.warning("a profile stays as it was: %s", problem)
        self.events.emit(
            ProfilesChanged(profiles_version=profiles.version, changed=changed, problems=profiles.problems)
        )

    async def narrow(self, text: str, **options: Unpack[NarrowOptions]) -> Narrowing:
        """Whether the request needs a tool at all, and which few suit it, with reasons for everything."""
        async with self._track_request():
            await self._arrivals.connect_idle(options.get("server"))
            guide = await self._get_narrower()
            return await guide.narrow(
                self.catalog.full_snapshot, text, **self.profiles.apply_profile(options)
            )

    async def settle(self, seconds: float) -> bool:
        """Wait, at most so long, until every tool can be compared by meaning and not by words alone."""
        async with self._track_request():
            guide = await self._get_narrower()
            return await guide.wait_until_indexed(self.catalog.full_snapshot, seconds)

    async def route(self, text: str, **options: Unpack[RouteOptions]) -> Route:
        """Answer a request: narrow, choose, call, answer. How it ended, or where it waits, is a `Route`."""
        async with self._track_request():
            return await (await self._get_request_runner(options.get("server"))).route(text, options)

    async def stream(self, text: str, **options: Unpack[RouteOptions]) -> AsyncGenerator[StreamItem]:
        """The same, as it happens: events, pieces of the answer, and the `Route` as the last item."""
        async with (
            self._track_request()
        ):  # what comes behind it is ended by itself: a reader may never come back
            answerer = await self._get_request_runner(options.get("server"))
        async with aclosing(answerer.stream(text, options)) as items:
            async for item in items:
                yield item

    async def resume(
        self,
        waiting: Route | Pending | str,
        approval: Approval | None = None,
        *,
        packet_id: str | None = None,
        **options: Unpack[RouteOptions],
    ) -> Route:
        """Go on with a request that waited for a person, in this process or after a restart.

        `approval` is their word, from `pending.approve(by=…)` or `pending.reject(by=…)`; None where it
        was given elsewhere. The stored call runs: no model is asked for it again. Where several requests
        wait for one call, it runs once; a route, or `packet_id`, says which of them goes on, else the
        first that has not.
        """
        async with self._track_request():
            named = packet_id or (None if isinstance(waiting, str | Pending) else waiting.packet_id)
            answerer = await self._get_request_runner()
            return await answerer.resume(_get_pending_id(waiting), approval, options, packet_id=named)

    async def reply(self, asked: Route, answer: str, **options: Unpack[RouteOptions]) -> Route:
        """Go on with a request after the person answered its question (`asked.question`)."""
        async with self._track_request():
            return await (await self._get_request_runner()).reply(asked, answer, options)

    async def select(
        self, text: str, narrowing: Narrowing | None = None, **options: Unpack[NarrowOptions]
    ) -> ParsedSelection:
        """Which of the narrowed tools a model would take, with which arguments. Nothing is called."""
        async with self._track_request():
            answerer = await self._get_request_runner()
            return await answerer.select(text, narrowing or await self.narrow(text, **options), options)

    def _check_open(self) -> None:
        if not self._open:
            message = "the router is not open"
            raise ConfigError(message, hint="Ask inside of `async with Router(…) as router:`.")

    def _check_not_open(self) -> None:
        if self._opened:
            message = "this router is open already" if self._open else "this router was opened before"
            raise ConfigError(message, hint="A router is opened once: make a new one with `Router(…)`.")

    def _track_request(self) -> AbstractAsyncContextManager[None]:
        """Around everything that takes time: it is ended, and on record, before the router is closed."""
        self._check_open()
        return self.calls.under_way.track()

    async def _get_request_runner(self, server: str | None = None) -> RequestRunner:
        """What answers. Servers nobody has connected yet are connected first: all, or the one asked for."""
        self._check_open()
        if server is not None:
            self.servers.get_status(server)  # raises where there is none
        await self._arrivals.connect_for_request(server)
        if server is not None and (status := self.servers.get_status(server)).state is ServerState.DOWN:
            message = f"{server} is down: {status.reason or 'it did not say why'}"
            raise ServerUnavailable(message, server=server, hint="`fingerpost doctor` says more about it.")
        guide = await self._get_narrower()
        if self._answerer is None:
            from fingerpost.router.request_runner import RequestRunner

            self._answerer = RequestRunner(
                self.settings,
                events=self.events,
                store=self.store,
                calls=self.calls,
                narrower=guide,
                pool=self._get_pool(),
                snapshot=lambda: self.catalog.full_snapshot,
                tasks=self._tasks,
                switches=self.switches,
                learn=self.learn,
                profiles=self.profiles,
                instance=self.instance,
            )
        return self._answerer

    @property
    def models(self) -> ModelNames:
        """Who answers: the models given, else those of the settings."""
        return resolve_model_names(self._models, self.settings.models)

    def _get_pool(self) -> ModelPool:
        """The models given, else those in the settings."""
        if self._pool is None:
            from fingerpost.llm import ModelPool
            from fingerpost.router.store_sync import StoredCapabilities

            lite, prime = self._models
            memory = StoredCapabilities(self.store.cache)
            self._pool = ModelPool.of(self.settings.models, lite=lite, prime=prime, memory=memory)
        return self._pool

    async def _get_narrower(self) -> RequestNarrower:
        """What narrows. Made when it is first needed: numpy and the encoder take time to load."""
        self._check_open()
        async with self._making_guide:
            if self._guide is None:
                self._guide = await anyio.to_thread.run_sync(self._build_narrower)
        return self._guide

    def _build_narrower(self) -> RequestNarrower:
        """In a worker thread: what answers is loaded here too, or the first request would hold up others."""
        import_module("fingerpost.router.request_runner")
        from fingerpost.router.request_narrower import RequestNarrower

        return RequestNarrower(
            self.settings,
            self.events,
            self.store,
            get_unusable=self._find_unusable_servers,
            get_absent=self._find_absent_servers,
            pool=self._get_pool(),
            switches=self.switches,
            visibility=self._sight,
            tasks=self._tasks,
        )

    async def _close_narrower(self) -> None:
        if self._guide is not None:
            await self._guide.close()
        if self._pool is not None:
            await self._pool.aclose()
        await close_models(self._models)

    def _find_absent_servers(self) -> dict[str, str]:
        """Servers that should be connected and are not, each with the reason."""
        connected = (ServerState.READY, ServerState.DISABLED)
        return {
            status.name: status.reason or f"it is {status.state.value}"
            for status in self.servers.statuses
            if status.state not in connected
        }

    def _find_unusable_servers(self) -> dict[str, str]:
        """Servers whose tools cannot be called now, each with the reason."""
        reasons = {
            status.name: status.reason or "it is down"
            for status in self.servers.statuses
            if status.state is ServerState.DOWN
        }
        for server, breaker in self.calls.runner.breakers.items():
            if breaker.state is BreakerState.OPEN:
                reasons.setdefault(server, f"it failed too often: {breaker.reason}")
        return reasons

    async def prefer(self, caller: str, effort: Effort | str | None) -> None:
        """What this caller wants of answers from now on: quick, thorough, or (None) what is usual."""
        async with self._track_request():
            await self.store.preferences.set_effort(caller, None if effort is None else Effort(effort))
            await self._read_preferences()

    async def _read_preferences(self) -> None:
        self.profiles.efforts = await self.store.preferences.get_efforts()

    async def register(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        effect: Effect | str | None = None,
        server: str = "local",
    ) -> ToolCard:
        """Offer a Python function, sync or async, as the tool `server/name` from now on.

        Name, description and parameters are those of the function unless given; a function of the same
        name is replaced. `effect` is what calling it does; without it the name and description are judged,
        as with every tool. Calls go down the whole path: policy, arguments, time-outs, digest, events.
        Raises `ConfigError` when there is nothing to call, or its parameters cannot be told to a model.
        """
        from fingerpost.servers.spec import FunctionServer, build_function_tool

        async with self._track_request():
            tool = build_function_tool(function, name=name, description=description, effect=effect)
            made = self._functions.get(server)
            if made is None:
                made = FunctionServer(server)
                await self.servers.add(made.build_spec())
                self._functions[server] = made
            key = made.add(tool)
            await self.servers.refresh(server)
            card = self.tools.get(key)
            if card is None:
                message = f"{key} was registered and is not offered"
                hint = f"`fingerpost pins` and `fingerpost tool {key}` say why."
                raise ConfigError(message, hint=hint)
            return card

    async def unregister(self, key: str) -> None:
        """Take a registered function away. Raises `ToolNotFoundError` where none is registered under this
        key.
        """
        async with self._track_request():
            server, _, name = key.partition("/")
            made = self._functions.get(server)
            if made is None or not made.remove(name):
                message = f"no function is registered as {key}"
                raise UnknownTool(message, hint="Only what was registered can be taken away.")
            await self.servers.refresh(server)

    async def call(
        self,
        name: str,
        arguments: JsonObject,
        *,
        api_version: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Outcome:
        """Call a tool through the whole path. Whatever happens comes back as an `Outcome`.

        A call that needs a person comes back with a `pending_id`; after
        `router.calls.decide`, `resume_call` goes on with it. A server that is not connected
        yet is connected first, in the call's time. Raises where the router is closed, before or meanwhile,
        and where the arguments are no JSON object.
        """
        self._check_open()
        check_json_object(arguments)
        wish = ToolCall(name=name, arguments=arguments)
        options["profile"] = self.profiles.resolve_profile(
            options.get("profile"), caller=options.get("caller"), api_version=api_version
        )
        async with self._track_request():
            made = await self._arrivals.connect_for_call(
                wish, CallContext(call_id=create_id("cal"), **options)
            )
            outcome = await self.calls.call(wish, made)
        self.learn(
            options.get("request", ""), outcome, options.get("conversation"), caller=options.get("caller")
        )
        return outcome

    async def resume_call(self, pending_id: str) -> Outcome:
        """Go on with a call that waited for a person: run it, or say what became of it.

        A server that is not connected yet is connected first: it may have been asked for in another process.
        """
        self._check_open()
        async with self._track_request():
            context = CallContext(call_id=create_id("cal"))
            if (pending := await self.calls.approvals.get(pending_id)) is not None:
                wish = ToolCall(name=pending.tool, arguments=pending.arguments)
                context = await self._arrivals.connect_for_call(wish, context)
            return await self.calls.resume(pending_id, context)

    def learn(
        self, request: str, outcome: Outcome, conversation: str | None, *, caller: str | None = None
    ) -> None:
        """Remember whether the tool was the right one for the request it was called for."""
        if not self.settings.flags.learned_use:
            return
        learned = build_choice_sample(request, outcome, at=utc_now(), conversation=conversation)
        if learned is not None:
            self.store.choices.record_soon(replace(learned, caller=caller))
            if self._guide is not None:
                self._guide.mark_stale()

    async def feedback(
        self,
        packet_id: str,
        verdict: FeedbackVerdict | str,
        *,
        by: str,
        tool: str | None = None,
        should_have: str | None = None,
        comment: str = "",
    ) -> Feedback:
        """A person's word about a request: "good", or "bad" and perhaps which tool it should have used."""
        self._check_open()
        return await self.learning.give_feedback(
            packet_id, verdict, by=by, tool=tool, should_have=should_have, comment=comment
        )

    def _mark_learning_stale(self) -> None:
        if self._guide is not None:
            self._guide.mark_stale(at_once=True)
        if self._answerer is not None:
            self._answerer.thresholds.forget()

    def start(self, name: str, arguments: JsonObject, **options: Unpack[CallOptions]) -> str:
        """The same in the background: a handle for `router.background`'s poll, result and cancel."""
        self._check_open()
        return self.background.start(lambda _: self.call(name, arguments, **options), tool=name)

    async def sign_in(self, server: str, *, open_browser: Callable[[str], None]) -> ServerStatus:
        """Sign in to a server with OAuth, keep the token, and connect."""
        self._check_open()
        spec = next((spec for spec in self._specs if spec.name == server), None)
        if spec is None:
            return self.servers.get_status(server)  # raises, naming the servers that are meant perhaps
        await sign_in(spec, self.store.tokens, open_browser=open_browser)
        await self.servers.ensure(server, timeout=spec.connect_timeout)
        return self.servers.get_status(server)

    @property
    def tools(self) -> Snapshot:
        """Every tool there is right now; the view does not change under its reader.

        What servers list only to callers' own keys is not among them (`with_own_tools`).
        """
        return self.catalog.snapshot

    async def with_own_tools(self, principal: Principal, authorization: str | None) -> Principal:
        """The caller with what servers set up for it list to this key of theirs: they alone see that."""
        if authorization is None:
            return principal
        who = f"{principal.kind}:{principal.name}"
        found = await self.servers.list_caller_tools(who, authorization, timeout=PERSONAL_LIST_TIMEOUT_S)
        if not found:
            return principal
        keys = tuple(build_tool_key(server, name) for server, name in found)
        return replace(principal, scope=replace(principal.scope, personal=keys))

    def view(
        self, *, caller: str | None = None, profile: str | None = None, scopes: tuple[Scope, ...] = ()
    ) -> VisibleCatalog:
        """The tools this caller may see and call. Worked out once for each until the catalog changes."""
        return self._sight.get_view(self.catalog.full_snapshot, caller, profile, scopes)

    async def look(
        self, *, caller: str | None = None, profile: str | None = None, scopes: tuple[Scope, ...] = ()
    ) -> VisibleCatalog:
        """The same, worked out in a thread: many tools against many rules take a while."""
        return await self._sight.compute_view(self.catalog.full_snapshot, caller, profile, scopes)

    async def accept(self, key: str, *, by: str, fingerprint: str) -> Pin:
        """A person accepts the changed definition of a quarantined tool; it is offered again.

        `fingerprint` is of the definition they were shown: one that changed once more is refused.
        """
        self._check_open()
        return await self._store_pin(self.catalog.accept(key, by, fingerprint=fingerprint))

    async def accept_instructions(self, server: str, *, by: str, fingerprint: str) -> Pin:
        """A person accepts what a server now says of itself; it is passed on again.

        `fingerprint` is of the text they were shown: one that changed once more is refused.
        """
        self._check_open()
        return await self._store_pin(self.catalog.accept_instructions(server, by, fingerprint=fingerprint))

    async def say_only_reads(self, key: str, *, by: str, fingerprint: str, only_reads: bool = True) -> Pin:
        """A person says that a tool only reads, so that its calls run without a question; or takes it back.

        `fingerprint` is of the definition they were shown: the word holds for that one.
        """
        self._check_open()
        pin = self.catalog.set_read_only(key, by, fingerprint=fingerprint, only_reads=only_reads)
        return await self._store_pin(pin)

    async def _store_pin(self, pin: Pin) -> Pin:
        await self.store.pins.put(pin)
        await self.store.journal.flush()
        return pin

    def _apply_listing(self, server: str) -> None:
        """A server changed. Its last tools stay while it is down: it comes back, and lists stay stable."""
        try:
            listing = self.servers.get_listing(server)
        except UnknownServer:
            self._intake.remove_server(server)
            return
        if self.servers.get_status(server).state in (ServerState.READY, ServerState.DEGRADED):
            self.calls.runner.on_reconnected(server)
        if listing is not None:
            self._intake.apply_listing(listing)


def _check_event_loop() -> None:
    """Here, before anything is opened: the database and the transports know no other kind."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        message = "Fingerpost runs on asyncio, and this is another event loop"
        hint = "Use `asyncio.run(main())`, or `anyio.run(main)` without a backend."
        raise ConfigError(message, hint=hint) from None


def _get_pending_id(waiting: Route | Pending | str) -> str:
    if isinstance(waiting, str):
        return waiting
    pending = waiting if isinstance(waiting, Pending) else waiting.pending
    if pending is None:
        message = "this route waits for nobody's approval"
        raise CallError(message, hint="Only a route whose outcome is 'waiting' can be resumed.")
    return pending.pending_id
