"""The router: connects catalog, servers, store, narrowing, calls and answers. This is the programming API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

import anyio
import anyio.to_thread

from fingerpost.call.execution import BackgroundCalls, BreakerState
from fingerpost.call.outcomes import build_choice_sample
from fingerpost.call.pipeline import CallPipeline
from fingerpost.call.quotas import Quotas
from fingerpost.catalog import Catalog, Snapshot
from fingerpost.catalog.intelligence import keeps_state
from fingerpost.catalog.pins import build_server_key
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
from fingerpost.llm import ModelPool
from fingerpost.narrow.scorer import Scorer
from fingerpost.narrow.sentence_judge import judge_in_own_process, judge_in_this_process
from fingerpost.policy.rules import PolicyRule
from fingerpost.policy.visibility import VisibilityCache, VisibleCatalog
from fingerpost.records import (
    Approval,
    CallContext,
    CallerAuthorization,
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
    create_id,
    find_json_problem,
    utc_now,
)
from fingerpost.records.json import to_valid_json
from fingerpost.router.catalog_sync import CatalogSync, LazyConnector
from fingerpost.router.configuration import Configuration, ServerTrial, try_server
from fingerpost.router.extensions import Extensions
from fingerpost.router.feedback import FeedbackService
from fingerpost.router.options import (
    CallKeywords,
    CallOptions,
    ModelNames,
    NarrowKeywords,
    NarrowOptions,
    RouteKeywords,
    RouteOptions,
    RuntimeSwitches,
    build_options,
    check_option_names,
    check_request,
    close_models,
    resolve_model_names,
)
from fingerpost.router.profiles import POLL_INTERVAL_S, Policy, Profiles, build_profile_rules, poll_profiles
from fingerpost.router.store_sync import (
    CHANGED_TOPIC,
    DisabledTools,
    StoredCapabilities,
    UserDirectory,
    hold_claim,
    poll_store,
    refresh_pins,
    renew_lease,
)
from fingerpost.servers import ServerPool, sign_in
from fingerpost.servers.spec import FunctionServer, FunctionTool
from fingerpost.settings import Loaded, OwnRule, ProfileFiles, Settings
from fingerpost.tasks import run_restarting

if TYPE_CHECKING:
    from fingerpost.llm import ChatModel
    from fingerpost.router.request_narrower import RequestNarrower
    from fingerpost.router.request_runner import RequestRunner
    from fingerpost.router.route import Route, StreamItem
    from fingerpost.store import Store


def check_json_object(arguments: object) -> None:
    """Raise if the arguments are no JSON object. Lone surrogates are allowed: recorded calls contain them."""
    if not isinstance(arguments, Mapping):
        message = f"the arguments are a {type(arguments).__name__} and no object"
        raise CallError(message, hint="Pass a dict of names and values; {} where there are none.")
    given = cast("object", arguments)
    reason = find_json_problem(given)
    if reason is None:
        return
    try:
        reason = find_json_problem(to_valid_json(given))
    except ValueError as deep:
        reason = str(deep)
    if reason is not None:
        message = f"the arguments cannot be written as JSON: one {reason}"
        raise CallError(message, hint="Use texts, numbers, true, false, null, lists and dicts of these.")


log = logging.getLogger("fingerpost.router")

PERSONAL_LIST_TIMEOUT_S = 5.0  # longest wait for tools that servers list for the caller's own key
FIRST_CONNECT_TIMEOUT_S = 10.0  # longest wait of a request for servers; slower ones serve the next request


class Requests:
    """Answers requests whose options are one record. `Router` has the same methods with keywords."""

    def __init__(
        self,
        track: Callable[[], AbstractAsyncContextManager[None]],
        get_runner: Callable[[str | None], Awaitable[RequestRunner]],
    ) -> None:
        self._track = track
        self._get_runner = get_runner  # connects idle servers first: all, or only the one named

    async def route(self, text: str, options: RouteOptions) -> Route:
        """Answer a request."""
        async with self._track():
            return await (await self._get_runner(options.server)).route(text, options)

    async def stream(self, text: str, options: RouteOptions) -> AsyncGenerator[StreamItem]:
        """Answer a request. Yield events, pieces of the answer, and the `Route` as the last item."""
        async with self._track():  # the runner tracks the stream itself: a reader may never come back
            runner = await self._get_runner(options.server)
        async with aclosing(runner.stream(text, options)) as items:
            async for item in items:
                yield item

    async def resume(
        self,
        waiting: Route | Pending | str,
        approval: Approval | None,
        options: RouteOptions,
        *,
        packet_id: str | None = None,
    ) -> Route:
        """Continue a request that waited for a person."""
        async with self._track():
            pending_id = _get_pending_id(waiting)
            named = packet_id or (None if isinstance(waiting, str | Pending) else waiting.packet_id)
            runner = await self._get_runner(None)
            return await runner.resume(pending_id, approval, options, packet_id=named)

    async def reply(self, asked: Route, answer: str, options: RouteOptions) -> Route:
        """Continue a request after the person answered its question."""
        async with self._track():
            return await (await self._get_runner(None)).reply(asked, answer, options)


class Router:
    """The main object of Fingerpost, an async context manager.

    No server is connected until `connect` is called or one of its tools is needed.
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
        scorers: Iterable[Scorer] = (),
        rules: Iterable[PolicyRule] = (),
        frees_encoder: bool = False,
    ) -> None:
        """`model` has both roles unless `lite` or `prime` is given. `policy` precedes the rules of the
        settings. `scorers` add to the scores of tools, `rules` judge every call beside the configured rules.
        With `frees_encoder`, the encoder and the judge of definitions run in processes of their own, which
        end when they are idle: for services.

        Models are closed together with the router.
        """
        servers = _check_servers(servers)
        _check_parts([model, lite, prime], settings, policy)
        settings = settings or Settings()
        given = () if policy is None else policy.rules
        self._rules = (given, settings.policy)  # before and after the rules of profiles
        self.profiles = Profiles(settings.profiles, settings.plans)
        self.settings = settings = self._apply_profiles(settings)
        self.switches = RuntimeSwitches(settings)
        self._visibility = VisibilityCache(settings.policy, self.profiles.bounds)
        self._models = (lite or model, prime or model)
        self._pool: ModelPool | None = None
        self._narrower: RequestNarrower | None = None
        self._runner_type: type[RequestRunner] | None = None
        self._request_runner: RequestRunner | None = None
        self._narrower_lock = anyio.Lock()
        self.requests = Requests(self._track_request, self._get_request_runner)
        self.live = LiveFeed()
        self.events = Fanout(self.live, *sinks)
        self.catalog = Catalog(
            events=self.events, overrides=settings.tools, flags=settings.flags, own=settings.builtin.enabled
        )
        self.extensions = Extensions(scorers, rules, servers)
        self._functions: dict[str, FunctionServer] = {}  # functions registered at run time, by server
        self._stack = AsyncExitStack()
        self.instance = create_id("ins")  # the id of this process among those that share the store
        self._opened = False  # whether the router was ever opened
        self._open = False
        self.is_warming_up = False  # a request would wait for what is being loaded
        self._frees_encoder = frees_encoder
        self.configuration: Configuration | None = None  # None: its settings files are not followed
        self._profile_polling: anyio.CancelScope | None = None

    def __repr__(self) -> str:
        state = "open" if self._open else "not open"
        return f"Router(servers={len(self.extensions.servers)}, tools={len(self.tools.cards)}, {state})"

    async def __aenter__(self) -> Self:
        _check_event_loop()
        self._check_not_open()
        async with AsyncExitStack() as stack:
            # The database library takes long to load, and only an open router needs it.
            package = await anyio.to_thread.run_sync(import_module, "fingerpost.store")
            self.store = await stack.enter_async_context(
                cast("type[Store]", package.Store).open(
                    self.settings.store.url,
                    memory=self.settings.store.url is None,
                    flush_ms=self.settings.store.flush_ms,
                    audit=self.settings.flags.audit,
                    secret=self.settings.store.secret,
                    secret_file=self.settings.store.secret_file,
                    anchors=self.settings.audit.anchors,
                    anchor_seconds=self.settings.audit.anchor_seconds,
                )
            )
            self._check_not_open()
            self._opened = True  # set late: a store that could not be opened may be tried again
            await anyio.to_thread.run_sync(self.extensions.load, self.settings.extensions)
            self.events.add(self.store.journal)
            self.catalog.use_judge(judge_in_own_process if self._frees_encoder else judge_in_this_process)
            self.catalog.learn(await self.store.usage.get_profiles())
            self._catalog_sync = CatalogSync(self.catalog, self.store)
            update_pins = partial(refresh_pins, self.store, self.catalog, self._catalog_sync)
            # Before any task starts, because a task group would wrap configuration errors.
            servers = ServerPool(
                self.extensions.servers,
                events=self.events,
                limits=self.settings.limits,
                tokens=self.store.tokens,
                on_listing=self._catalog_sync.prepare_listing,
                lifecycle=self.settings.lifecycle,
                has_state=keeps_state,
                hold_renewal=lambda name: hold_claim(self.store, name, self.instance),
            )
            await self._use_entries(await servers.read_entries())
            stack.push_async_callback(self._catalog_sync.save)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(run_restarting, self._catalog_sync.keep_saving)
            self.servers = await stack.enter_async_context(servers)
            self.quotas = Quotas(
                [quota.to_record() for quota in self.settings.quotas], self.store.quotas, self.instance
            )
            await self.quotas.refresh()
            self.users = UserDirectory(self.store.users, self.store.keys)
            await self.users.refresh()
            self.calls = CallPipeline(
                catalog=self.catalog,
                servers=self.servers,
                store=self.store,
                settings=self.settings,
                events=self.events,
                tasks=tasks,
                bounds=self.profiles.bounds,
                instance=self.instance,
                extra_rules=self.extensions.rules,
                quotas=self.quotas,
                find_user=self.users.get_user_name,
            )
            self._connector = LazyConnector(
                self.servers,
                self.calls,
                get_tools=lambda: self.tools,
                timeout=self._connect_timeout,
                request_timeout=FIRST_CONNECT_TIMEOUT_S,
            )
            self.disabled_tools = DisabledTools(
                store=self.store, catalog=self.catalog, servers=self.servers, events=self.events
            )
            await self.disabled_tools.refresh()
            await self._read_preferences()
            self.learning = FeedbackService(
                self.settings,
                self.store,
                self.events,
                find_visible=lambda caller, profile, scopes: self.look(
                    caller=caller, profile=profile, scopes=scopes
                ),
                get_tools=lambda: self.tools,
                on_changed=self._mark_learning_stale,
            )
            stack.callback(self.servers.subscribe_to_changes(self._apply_listing))
            await self._offer_known(*(status.name for status in self.servers.statuses))
            stack.push_async_callback(self._close_narrower)
            self._tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(self._tasks.cancel_scope.cancel)
            self._tasks.start_soon(
                run_restarting,
                poll_store,
                self.store,
                self.disabled_tools.refresh,
                update_pins,
                self._read_preferences,
                self.quotas.refresh,
                self.users.refresh,
                self._offer_users_tools,
            )
            self._tasks.start_soon(run_restarting, self.quotas.return_spare_slots)
            lease_s = self.settings.store.lease_seconds
            with suppress(StoreError):  # a read-only store is enough for reading
                await self.store.instances.renew_lease(self.instance, lease_s=lease_s)
            stack.push_async_callback(self._end_instance)
            self._tasks.start_soon(
                run_restarting, partial(renew_lease, self.store, self.instance, lease_s=lease_s)
            )
            limits = package.RetentionLimits.from_settings(self.settings)
            self._tasks.start_soon(run_restarting, partial(self.store.retention.run, limits, self.instance))
            stack.push_async_callback(self.calls.in_flight.end_all)  # before the journal closes
            self.background = await stack.enter_async_context(BackgroundCalls[Outcome]())
            self._stack = stack.pop_all()
        self._open = True
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open = False
        # A task group would wrap the caller's own error, so it is not passed on.
        cancelled = isinstance(exc, anyio.get_cancelled_exc_class())
        await self._stack.__aexit__(*((exc_type, exc, traceback) if cancelled else (None, None, None)))

    async def connect(self, *names: str, timeout: float | None = None) -> tuple[ServerStatus, ...]:
        """Connect these servers in parallel and return the status of every server.

        Without names, servers that are known and run on demand stay asleep: their tools are offered, and the
        first call of one starts its server. Returns when each one is connected or has failed, or after
        `timeout` seconds. Servers that are still connecting then continue to do so.
        """
        self._check_open()
        self.servers.start(*names)
        await self.servers.wait_until_settled(timeout=self._connect_timeout if timeout is None else timeout)
        return self.servers.statuses

    async def refresh_access(self) -> None:
        """Apply changed users and quotas of the store, here and in the other processes."""
        await self.users.refresh()
        await self.quotas.refresh()
        self.store.messages.publish(CHANGED_TOPIC, {})

    async def _end_instance(self) -> None:
        with suppress(StoreError):  # the lease expires anyway
            await self.store.instances.end(self.instance)

    @property
    def _connect_timeout(self) -> float:
        """The longest connect timeout of any server, plus a margin so that it can report its failure."""
        return 5.0 + max((spec.connect_timeout for spec in self.extensions.servers), default=0.0)

    def _apply_profiles(self, settings: Settings) -> Settings:
        """Return the settings with the current profiles and their rules."""
        before, after = self._rules
        rules = (*before, *build_profile_rules(self.profiles), *after)
        return settings.model_copy(update={"policy": rules, "profiles": dict(self.profiles)})

    def follow_profiles(self, files: ProfileFiles, *, every: float = POLL_INTERVAL_S) -> None:
        """Apply changes of these files from now on."""
        self._check_open()
        if self._profile_polling is not None:
            self._profile_polling.cancel()
        self._profile_polling = scope = anyio.CancelScope()

        async def poll() -> None:
            with scope:
                await poll_profiles(files, self.profiles, self._on_profiles_changed, interval=every)

        self._tasks.start_soon(run_restarting, poll)

    def follow_settings(self, loaded: Loaded) -> None:
        """Apply changes of the settings files from now on. `loaded` is what the router was opened with."""
        self._check_open()
        if loaded.profile_files is not None:
            self.follow_profiles(loaded.profile_files)
        if loaded.places is not None:
            self.configuration = Configuration(self, loaded, loaded.places)
            self._tasks.start_soon(run_restarting, self.configuration.follow)

    async def apply_settings(self, before: Loaded, now: Loaded, sections: Collection[str]) -> None:
        """Apply these changed sections of the settings files to all following requests."""
        if now.profile_files is not None and now.profile_files != before.profile_files:
            self.follow_profiles(now.profile_files)
        if not sections:
            return
        if "plans" in sections:
            self.profiles.set_plans(now.settings.plans)
        if "policy" in sections:
            given, written = self._rules
            own = [rule for rule in written if isinstance(rule, OwnRule)]
            self._rules = (given, (*now.settings.policy, *own))
        added = self.settings.tools[: len(self.settings.tools) - len(before.settings.tools)]  # by our servers
        update = {
            "models": now.settings.models,
            "plans": now.settings.plans,
            "quotas": now.settings.quotas,
            "tools": (*added, *now.settings.tools),
        }
        self.settings = self._apply_profiles(self.settings.model_copy(update=update))
        self._visibility.set_rules(self.settings.policy, self.profiles.bounds)
        self.calls.use_rules(self.settings.policy, self.profiles.bounds)
        if "quotas" in sections:
            self.quotas.configure([quota.to_record() for quota in self.settings.quotas])
        if "tools" in sections:
            self._catalog_sync.use_overrides(self.settings.tools)
        if "models" in sections and self._pool is not None:
            lite, prime = self._models
            self._pool.replace_models(self.settings.models, lite=lite, prime=prime)

    async def add_server(self, spec: ServerSpec) -> None:
        """Add a server and connect it. Raises `ConfigError` if there is one of this name."""
        self._check_open()
        await self.servers.add(spec)
        self.extensions.servers = (*self.extensions.servers, spec)
        await self._start_added(spec.name)

    async def replace_server(self, spec: ServerSpec) -> None:
        """Replace the server of this name. Calls that run on it finish."""
        self._check_open()
        await self.servers.replace(spec)
        self.extensions.servers = tuple(
            spec if one.name == spec.name else one for one in self.extensions.servers
        )
        await self._start_added(spec.name)

    async def remove_server(self, name: str) -> None:
        """Remove a server and its tools. Calls that run on it finish."""
        self._check_open()
        self.servers.retire(name)
        self.extensions.servers = tuple(one for one in self.extensions.servers if one.name != name)

    async def _start_added(self, name: str) -> None:
        """Offer what is known of a new server, and connect it unless that is enough."""
        await self.disabled_tools.refresh()
        await self._use_entries(await self.servers.read_entries())
        await self._offer_known(name)
        self.servers.start_needed(name)

    async def _use_entries(self, entries: Mapping[str, str]) -> None:
        """Use the pins of the servers' current entries."""
        await self._catalog_sync.save_pins()  # of the entries before
        parts = {build_server_key(name).removesuffix("/"): name for name in entries}
        by_part = {part: entries[name] for part, name in parts.items()}
        changed = await self.store.pins.use_entries(by_part)
        self.catalog.changed_entries = frozenset(parts[part] for part in changed)
        await refresh_pins(self.store, self.catalog, self._catalog_sync)

    async def _offer_known(self, *names: str) -> None:
        """Offer what these servers listed before."""
        entries = self.servers.select_knowable(*names)
        await self.servers.offer_known(await self.store.known_servers.find(entries))

    async def _offer_users_tools(self) -> None:
        """Offer tools that a server has listed for a user in another process."""
        if names := self.servers.list_unlisted_for_users():
            await self._offer_known(*names)

    async def try_server(self, spec: ServerSpec) -> ServerTrial:
        """Connect to a server once and return its tools, or why that failed. It is not added."""
        self._check_open()
        return await try_server(spec, self.settings, self.store.tokens, self.catalog.judge)

    def _on_profiles_changed(self, changed: tuple[str, ...]) -> None:
        """Apply changed profiles to all following requests."""
        profiles = self.profiles
        if changed:
            self.settings = self._apply_profiles(self.settings)
            self._visibility.set_rules(self.settings.policy, profiles.bounds)
            self.calls.use_rules(self.settings.policy, profiles.bounds)
        for problem in profiles.problems:
            log.warning("a profile was not updated: %s", problem)
        self.events.emit(
            ProfilesChanged(profiles_version=profiles.version, changed=changed, problems=profiles.problems)
        )

    async def narrow(self, text: str, **options: Unpack[NarrowKeywords]) -> Narrowing:
        """Return whether the request needs a tool and which few tools suit it, with reasons."""
        check_request(text)
        return await self._narrow(text, build_options(NarrowOptions, options))

    async def _narrow(self, text: str, options: NarrowOptions) -> Narrowing:
        async with self._track_request():
            await self._connector.connect_idle(options.server)
            narrower = await self._get_narrower()
            return await narrower.narrow(
                self.catalog.full_snapshot, text, self.profiles.apply_profile(options)
            )

    async def settle(self, seconds: float, *, request: str | None = None) -> bool:
        """Wait until every tool can be compared by meaning. Return whether this happened within `seconds`.

        It does not wait if `request` is only a greeting or thanks, which is compared with no tool.
        """
        async with self._track_request():
            narrower = await self._get_narrower()
            if request is not None and await narrower.is_small_talk(self.catalog.full_snapshot, request):
                return True
            return await narrower.wait_until_indexed(self.catalog.full_snapshot, seconds)

    async def warm_up(self, seconds: float) -> None:
        """Load what the first request needs: encoder, vectors, and the code that answers and connects."""
        self.is_warming_up = True
        try:
            await self._get_request_runner()
            await self.servers.load_library()
            await self.scan_instructions()
            await (await self._get_narrower()).warm_up(self.catalog.full_snapshot, seconds)
        finally:
            self.is_warming_up = False

    async def scan_instructions(self) -> None:
        """Scan the instructions of the servers now, if that is not done. Otherwise `catalog.get_instructions`
        does it, in the event loop.
        """
        self._check_open()
        await self._catalog_sync.scan_instructions()

    async def route(self, text: str, **options: Unpack[RouteKeywords]) -> Route:
        """Answer a request: narrow, choose, call, answer. The `Route` says how it ended or what it waits
        for.

        Options, all with defaults (`help(fingerpost.router.options.RouteOptions)` says more of each):
            conversation, history: what was said before, by id or as messages
            caller, profile, scopes, authorization: who asks, and what they may use
            server, max_tools, used: which tools are offered
            mode, effort, model, max_turns, ask_model: how tools are chosen
            seconds, tokens: limits of the request
            working_directory, persona, directives, options, parts: for tools and the answering model
            dry_run: show what would be called, call nothing
            on_text: receives the answer piece by piece
            caller_tools, tool_choice, own_terms: the caller's own tools and limits
            about, api_version, asked_for_tools, chosen_servers, parent, since: for other surfaces
        """
        check_request(text)
        return await self.requests.route(text, build_options(RouteOptions, options))

    async def stream(self, text: str, **options: Unpack[RouteKeywords]) -> AsyncGenerator[StreamItem]:
        """Answer a request as `route` does. Yield events, pieces of the answer, and last the `Route`."""
        check_request(text)
        async with aclosing(self.requests.stream(text, build_options(RouteOptions, options))) as items:
            async for item in items:
                yield item

    async def resume(
        self,
        waiting: Route | Pending | str,
        approval: Approval | None = None,
        *,
        packet_id: str | None = None,
        **options: Unpack[RouteKeywords],
    ) -> Route:
        """Continue a request that waited for a person, in this process or after a restart.

        `approval` is the person's decision, from `pending.approve(by=…)` or `pending.reject(by=…)`; None if
        it was recorded elsewhere. The stored call runs and no model is asked for it again. If several
        requests wait for one call, it runs once. A route or `packet_id` selects the request to continue; the
        default is the first that still waits.
        """
        return await self.requests.resume(
            waiting, approval, build_options(RouteOptions, options), packet_id=packet_id
        )

    async def reply(self, asked: Route, answer: str, **options: Unpack[RouteKeywords]) -> Route:
        """Continue a request after the person answered its question (`asked.question`)."""
        check_request(answer)
        return await self.requests.reply(asked, answer, build_options(RouteOptions, options))

    async def select(
        self, text: str, narrowing: Narrowing | None = None, **options: Unpack[NarrowKeywords]
    ) -> ParsedSelection:
        """Return which of the narrowed tools a model would call, and the arguments. Nothing is called."""
        async with self._track_request():
            runner = await self._get_request_runner()
            given = build_options(RouteOptions, options)
            return await runner.select(text, narrowing or await self._narrow(text, given), given)

    def _check_open(self) -> None:
        if not self._open:
            message = "the router is not open"
            raise ConfigError(message, hint="Use it inside of `async with Router(…) as router:`.")

    def _check_not_open(self) -> None:
        if self._opened:
            message = "this router is open already" if self._open else "this router was opened before"
            raise ConfigError(message, hint="A router is opened once: make a new one with `Router(…)`.")

    def _track_request(self) -> AbstractAsyncContextManager[None]:
        """Track a request, so that it is ended and recorded before the router closes."""
        self._check_open()
        return self.calls.in_flight.track()

    async def _get_request_runner(self, server: str | None = None) -> RequestRunner:
        """Return the request runner. Idle servers are connected first: all, or only `server`."""
        self._check_open()
        if server is not None:
            self.servers.get_status(server)  # raises if there is no such server
        await self._connector.connect_for_request(server)
        if server is not None and (status := self.servers.get_status(server)).state is ServerState.DOWN:
            message = f"{server} is down: {status.reason or 'no reason given'}"
            raise ServerUnavailable(message, server=server, hint="`fingerpost doctor` says more.")
        narrower = await self._get_narrower()
        if self._request_runner is None:
            assert self._runner_type is not None
            self._request_runner = self._runner_type(self, narrower, self._get_pool(), self._tasks)
        return self._request_runner

    @property
    def models(self) -> ModelNames:
        """The names of the models: those given, else those of the settings."""
        return resolve_model_names(self._models, self.settings.models)

    def _get_pool(self) -> ModelPool:
        """Return the given models, else those of the settings."""
        if self._pool is None:
            lite, prime = self._models
            memory = StoredCapabilities(self.store.cache)
            self._pool = ModelPool.of(self.settings.models, lite=lite, prime=prime, memory=memory)
        return self._pool

    async def _get_narrower(self) -> RequestNarrower:
        """Return the narrower. It is built on first use because it loads slowly."""
        self._check_open()
        async with self._narrower_lock:
            if self._narrower is None:
                self._narrower = await anyio.to_thread.run_sync(self._build_narrower)
        return self._narrower

    def _build_narrower(self) -> RequestNarrower:
        """Build the narrower in a worker thread, and import the request runner there: both take long."""
        from fingerpost.router import request_narrower, request_runner

        self._runner_type = request_runner.RequestRunner
        return request_narrower.RequestNarrower(
            self.settings,
            self.events,
            self.store,
            get_unusable=self._find_unusable_servers,
            get_absent=self._find_absent_servers,
            pool=self._get_pool(),
            switches=self.switches,
            visibility=self._visibility,
            tasks=self._tasks,
            scorers=self.extensions.scorers,
            encoder_idle_seconds=self.settings.lifecycle.idle_seconds if self._frees_encoder else None,
        )

    async def _close_narrower(self) -> None:
        if self._narrower is not None:
            await self._narrower.close()
        if self._pool is not None:
            await self._pool.aclose()
        await close_models(self._models)

    def _find_absent_servers(self) -> dict[str, str]:
        """Return servers that should have tools but do not, with the reasons."""
        connected = (ServerState.READY, ServerState.ASLEEP, ServerState.DISABLED)
        absent = {
            status.name: "; ".join(
                part for part in (status.reason or f"it is {status.state.value}", status.hint) if part
            )
            for status in self.servers.statuses
            if status.state not in connected
        }
        for status in self.servers.statuses:
            hidden = self.catalog.describe_quarantine(status.name)
            if hidden and not self.catalog.count_offered(status.name):
                absent[status.name] = hidden
        return absent

    def _find_unusable_servers(self) -> dict[str, str]:
        """Return servers whose tools cannot be called now, with the reasons."""
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
        """Set the caller's preferred effort: quick, thorough, or None for the default."""
        async with self._track_request():
            await self.store.preferences.set_effort(caller, None if effort is None else Effort(effort))
            self.store.messages.publish(CHANGED_TOPIC, {})
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
        """Offer a Python function, sync or async, as the tool `server/name`.

        Name, description and parameters are taken from the function unless given. A function of the same name
        is replaced. `effect` is the effect of a call; by default it is inferred from name and description.
        Calls use the whole pipeline: policy, arguments, timeouts, digest, events. Raises `ConfigError` if
        `function` is not callable or its parameters cannot be expressed as a schema.
        """

        async with self._track_request():
            tool = FunctionTool.from_function(function, name=name, description=description, effect=effect)
            function_server = self._functions.get(server)
            if function_server is None:
                function_server = FunctionServer(server)
                await self.servers.add(function_server.build_spec())
                self._functions[server] = function_server
            key = function_server.add(tool)
            await self.servers.refresh(server)
            card = self.tools.get(key)
            if card is None:
                message = f"{key} was registered and is not offered"
                hint = f"`fingerpost pins` and `fingerpost tool {key}` say why."
                raise ConfigError(message, hint=hint)
            return card

    async def unregister(self, key: str) -> None:
        """Remove a registered function. Raises `UnknownTool` if none is registered under this key."""
        async with self._track_request():
            server, _, name = key.partition("/")
            function_server = self._functions.get(server)
            if function_server is None or not function_server.remove(name):
                message = f"no function is registered as {key}"
                raise UnknownTool(message, hint="Only registered functions can be removed.")
            await self.servers.refresh(server)

    async def call(
        self,
        name: str,
        arguments: JsonObject,
        *,
        api_version: str | None = None,
        **options: Unpack[CallKeywords],
    ) -> Outcome:
        """Call a tool through the whole pipeline. Every result and every failure is an `Outcome`.

        A call that needs approval returns a `pending_id`; after `router.calls.decide`, `resume_call`
        continues it. A server that is not connected is connected first, within the call's timeout. Raises if
        the router is closed, or closes meanwhile, and if the arguments are no JSON object.
        """
        self._check_open()
        check_json_object(arguments)
        tool_call = ToolCall(name=name, arguments=arguments)
        given = build_options(CallOptions, options)
        profile = self.profiles.resolve_profile(given.profile, caller=given.caller, api_version=api_version)
        async with self._track_request():
            context = await self._connector.connect_for_call(
                tool_call, replace(given, profile=profile).build_context()
            )
            outcome = await self.calls.call(tool_call, context)
        self.learn(given.request, outcome, given.conversation, caller=given.caller)
        if outcome.pending_id is not None and self.settings.store.url is None:  # no command sees this store
            waiting = outcome.pending_id
            decide = f"router.calls.decide({waiting!r}, 'approved', by=…), "
            decide += f"then router.resume_call({waiting!r})"
            advice = outcome.advice.replace(f"fingerpost approvals approve {waiting}", decide)
            return replace(outcome, advice=advice)
        return outcome

    async def resume_call(self, pending_id: str) -> Outcome:
        """Continue a call that waited for a person: run it, or return why it is not run.

        A server that is not connected is connected first: the call may come from another process.
        """
        self._check_open()
        async with self._track_request():
            context = CallContext(call_id=create_id("cal"))
            if (pending := await self.calls.approvals.get(pending_id)) is not None:
                tool_call = ToolCall(name=pending.tool, arguments=pending.arguments)
                context = await self._connector.connect_for_call(tool_call, context)
            return await self.calls.resume(pending_id, context)

    def learn(
        self, request: str, outcome: Outcome, conversation: str | None, *, caller: str | None = None
    ) -> None:
        """Record whether the tool was right for the request."""
        if not self.settings.flags.learned_use:
            return
        learned = build_choice_sample(request, outcome, at=utc_now(), conversation=conversation)
        if learned is not None:
            self.store.choices.record_soon(replace(learned, caller=caller))
            if self._narrower is not None:
                self._narrower.mark_stale()

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
        """Record a person's feedback on a request: "good", or "bad" and optionally the right tool."""
        self._check_open()
        return await self.learning.give_feedback(
            packet_id, verdict, by=by, tool=tool, should_have=should_have, comment=comment
        )

    def _mark_learning_stale(self) -> None:
        if self._narrower is not None:
            self._narrower.mark_stale(at_once=True)
        if self._request_runner is not None:
            self._request_runner.thresholds.reset()

    def start(self, name: str, arguments: JsonObject, **options: Unpack[CallKeywords]) -> str:
        """Call a tool in the background. Return a handle for `router.background`'s methods."""
        self._check_open()
        check_option_names(CallOptions, options)
        return self.background.start(lambda _: self.call(name, arguments, **options), tool=name)

    async def sign_in(self, server: str, *, open_browser: Callable[[str], None]) -> ServerStatus:
        """Sign in to a server with OAuth, store the token, and connect."""
        self._check_open()
        spec = next((spec for spec in self.extensions.servers if spec.name == server), None)
        if spec is None:
            return self.servers.get_status(server)  # raises and suggests similar server names
        await sign_in(spec, self.store.tokens, open_browser=open_browser)
        await self.servers.ensure(server, timeout=spec.connect_timeout)
        return self.servers.get_status(server)

    @property
    def tools(self) -> Snapshot:
        """An immutable snapshot of all current tools.

        Tools that servers list only for a caller's own key are not included (see `with_own_tools`).
        """
        return self.catalog.snapshot

    def may_have_own_tools(self, authorization: CallerAuthorization | None) -> bool:
        """Return whether servers may list other tools for a caller with this key, or for its sign-in."""
        return isinstance(authorization, str) or self.servers.has_user_servers

    async def with_own_tools(
        self, principal: Principal, authorization: CallerAuthorization | None
    ) -> Principal:
        """Return the caller with the tools that servers list for its own key or sign-in only."""
        if not self.may_have_own_tools(authorization):
            return principal
        who = f"{principal.kind}:{principal.name}"
        found = await self.servers.list_caller_tools(
            who, authorization, user=principal.user_name, timeout=PERSONAL_LIST_TIMEOUT_S
        )
        if not found:
            return principal
        keys = tuple(build_tool_key(server, name) for server, name in found)
        return replace(principal, scope=replace(principal.scope, personal=keys))

    def view(
        self, *, caller: str | None = None, profile: str | None = None, scopes: tuple[Scope, ...] = ()
    ) -> VisibleCatalog:
        """Return the tools that this caller may see and call, cached until the catalog changes."""
        return self._visibility.get_view(self.catalog.full_snapshot, caller, profile, scopes)

    async def look(
        self, *, caller: str | None = None, profile: str | None = None, scopes: tuple[Scope, ...] = ()
    ) -> VisibleCatalog:
        """Return the same as `view`, computed in a thread: many tools and rules take a while."""
        return await self._visibility.compute_view(self.catalog.full_snapshot, caller, profile, scopes)

    async def accept(self, key: str, *, by: str, fingerprint: str) -> Pin:
        """Accept the changed definition of a quarantined tool, which is then offered again.

        `fingerprint` identifies the definition that the person saw. Raises if it has changed since.
        """
        self._check_open()
        return await self._store_pin(self.catalog.accept(key, by, fingerprint=fingerprint))

    async def accept_instructions(self, server: str, *, by: str, fingerprint: str) -> Pin:
        """Accept the changed instructions of a server, which are then passed on again.

        `fingerprint` identifies the text that the person saw. Raises if it has changed since.
        """
        self._check_open()
        return await self._store_pin(self.catalog.accept_instructions(server, by, fingerprint=fingerprint))

    async def say_only_reads(self, key: str, *, by: str, fingerprint: str, only_reads: bool = True) -> Pin:
        """Mark a tool as read-only, so that its calls need no approval, or undo that.

        `fingerprint` identifies the definition that the person saw. The mark applies to that definition only.
        """
        self._check_open()
        pin = self.catalog.set_read_only(key, by, fingerprint=fingerprint, only_reads=only_reads)
        return await self._store_pin(pin)

    async def _store_pin(self, pin: Pin) -> Pin:
        await self.store.pins.put(pin)
        self.store.messages.publish(CHANGED_TOPIC, {})
        await self.store.journal.flush()
        return pin

    def _apply_listing(self, server: str) -> None:
        """Update the catalog after a server changed. A disconnected server keeps its tools."""
        try:
            listing = self.servers.get_listing(server)
        except UnknownServer:
            self._catalog_sync.remove_server(server)
            return
        if self.servers.get_status(server).state in (ServerState.READY, ServerState.DEGRADED):
            self.calls.runner.on_reconnected(server)
            if (known := self.servers.get_known(server)) is not None:
                self._catalog_sync.keep_known(*known)
        if listing is not None:
            self._catalog_sync.apply_listing(listing)


def _check_event_loop() -> None:
    """Raise early if the event loop is not asyncio: the database and the transports need it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        message = "Fingerpost runs on asyncio, and this is another event loop"
        hint = "Use `asyncio.run(main())`, or `anyio.run(main)` without a backend."
        raise ConfigError(message, hint=hint) from None


def _check_servers(servers: Iterable[ServerSpec]) -> tuple[ServerSpec, ...]:
    """Return the servers. Raises where the router is made, not at the first request, for what is none."""
    if isinstance(servers, ServerSpec):
        message = "servers is a list of servers, and this is one server"
        raise ConfigError(message, hint="Write Router([server]).")
    if isinstance(servers, str | PathLike):
        message = f"the router got a {type(servers).__name__} where servers belong"
        hint = 'Write Router([Server.stdio("name", ["program"])]), or Embedded("mcp.json") for a file.'
        raise ConfigError(message, hint=hint)
    found = tuple(servers)
    for server in cast("tuple[object, ...]", found):
        if not isinstance(server, ServerSpec):
            message = f"the router got a {type(server).__name__} where a server belongs"
            hint = 'Write Server.stdio("name", ["program"]) or Server.http("name", "https://host/path").'
            raise ConfigError(message, hint=hint)
    return found


def _check_parts(models: Sequence[object], settings: object, policy: object) -> None:
    """Raise where the router is made for models, settings and a policy that are of another kind."""
    if settings is not None and not isinstance(settings, Settings):
        message = f"settings takes Settings, not a {type(settings).__name__}"
        known = isinstance(settings, Loaded)
        raise ConfigError(
            message, hint="Write settings=load().settings." if known else "Write settings=Settings(…)."
        )
    if policy is not None and not isinstance(policy, Policy):
        message = f"policy takes a Policy, not a {type(policy).__name__}"
        raise ConfigError(message, hint='Write policy=Policy(deny={"server/tool"}).')
    for model in models:
        if model is not None and not callable(getattr(model, "complete", None)):
            message = f"the router got a {type(model).__name__} where a model belongs"
            hint = 'Write OpenAIChat("name", base_url="https://host/v1"), from fingerpost.llm.'
            raise ConfigError(message, hint=hint)


def _get_pending_id(waiting: Route | Pending | str) -> str:
    if isinstance(waiting, str):
        return waiting
    if not isinstance(waiting, Pending) and not hasattr(waiting, "pending"):
        message = f"resume takes a Route, its `pending` or the id of that, not {waiting!r:.60}"
        raise CallError(message, hint="Write resume(route, route.pending.approve(by=…)).")
    pending = waiting if isinstance(waiting, Pending) else waiting.pending
    if pending is None:
        message = "this route does not wait for an approval"
        raise CallError(message, hint="Only a route whose outcome is 'waiting' can be resumed.")
    return pending.pending_id
