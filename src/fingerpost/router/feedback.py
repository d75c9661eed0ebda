"""Feedback on tool choices, an overview of the learned data, and its deletion."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, get_args

import anyio.to_thread

from fingerpost.catalog import Snapshot
from fingerpost.errors import CallError, ConfigError, UnknownTool
from fingerpost.events import (
    CallFinished,
    Event,
    EventSink,
    FeedbackGiven,
    LearningForgotten,
    PacketReceived,
    RequestNarrowed,
    RouteBegan,
    ToolSelected,
)
from fingerpost.frozen import copy_fields, frozen
from fingerpost.records import (
    EVERYBODY,
    Choice,
    Feedback,
    FeedbackVerdict,
    Learned,
    LearnedCorrection,
    LearnedUse,
    LearningCheck,
    LearningMark,
    Packet,
    Preference,
    Scope,
    utc_now,
)
from fingerpost.settings import Settings

if TYPE_CHECKING:
    from fingerpost.policy.visibility import VisibleCatalog
    from fingerpost.store import Store

CHECK_NAME: Final = "learning"  # name of the comparison among the stored evals
FLAGS: Final = ("learned_use", "learn_from_feedback", "decision_cache", "preferences", "adaptive_thresholds")
MAX_SHOWN: Final = 100  # entries of each kind
_MAX_SHOWN_REQUESTS: Final = 3
_MIN_HABIT_USES: Final = 1.0
_MAX_LESS_USED_TOOLS: Final = 3


async def build_overview(settings: Settings, store: Store, tools: Snapshot, *, person: str | None) -> Learned:
    """Return the learned data that this person may see. For the operator, `person` is None."""
    feedback = await store.feedback.list_recent()
    choices = await store.choices.list_recent()
    habits_since = await store.learned.get_marks("preferences")
    decisions_since = await store.learned.get_marks("decisions")
    thresholds = await store.learned.list_thresholds()
    check = await _read_check(store)

    def gather() -> Learned:
        from fingerpost.narrow.feedback import PastDecisions, Preferences  # loads numpy

        habits, decisions = Preferences(), PastDecisions()
        now, learning = utc_now(), settings.learning
        half_life = timedelta(days=learning.half_life_days)
        habits.learn(choices, feedback, now=now, half_life=half_life, marks=habits_since)
        people = habits.people if person is None else (person,)
        oldest = now - timedelta(days=learning.decision_days)
        decisions.learn(choices, feedback, since=max(oldest, decisions_since.get(EVERYBODY, oldest)))
        return Learned(
            flags={name: bool(getattr(settings.flags, name)) for name in FLAGS},
            corrections=tuple(_count_corrections(feedback, person))[:MAX_SHOWN],
            uses=tuple(_count_uses(choices))[:MAX_SHOWN],
            preferences=tuple(
                habit for name in people for habit in _find_habits(name, habits.get_for(name), tools)
            )[:MAX_SHOWN],
            decisions=decisions.count,
            thresholds=tuple(thresholds),
            check=check,
        )

    return await anyio.to_thread.run_sync(gather)


async def _read_check(store: Store) -> LearningCheck | None:
    for kept in await store.evals.list_newest(limit=200):
        if kept.name == CHECK_NAME:
            report = kept.report
            requests = report.get("requests")
            return LearningCheck(
                at=kept.at,
                verdict=str(report.get("verdict", "")),
                requests=requests if isinstance(requests, int) else 0,
                reason=str(report.get("reason", "")),
            )
    return None


def _count_corrections(feedback: Sequence[Feedback], person: str | None) -> Iterator[LearnedCorrection]:
    """Yield corrections by pair of tools, most frequent first. Texts of others are counted, not shown."""
    grouped: defaultdict[tuple[str | None, str | None], list[Feedback]] = defaultdict(list)
    for one in feedback:
        if one.right is not None or one.wrong is not None:
            grouped[one.right, one.wrong].append(one)
    for (right, wrong), found in sorted(grouped.items(), key=lambda item: -len(item[1])):
        seen = [one for one in found if person in (None, one.by)]
        people = dict.fromkeys(one.by for one in seen)
        yield LearnedCorrection(
            right=right,
            wrong=wrong,
            times=len(found),
            by=tuple(people),
            latest=found[0].at,
            requests=tuple(dict.fromkeys(one.request for one in seen))[:_MAX_SHOWN_REQUESTS],
        )


def _count_uses(choices: Sequence[Choice]) -> Iterator[LearnedUse]:
    worked = Counter(choice.tool for choice in choices if choice.worked)
    failed = Counter(choice.tool for choice in choices if not choice.worked)
    for tool in sorted({*worked, *failed}, key=lambda tool: (-worked[tool] - failed[tool], tool)):
        yield LearnedUse(tool=tool, worked=worked[tool], failed=failed[tool])


def _find_habits(person: str, used: Mapping[str, float], tools: Snapshot) -> Iterator[Preference]:
    """Yield the person's most used tool of each category, with the tools used less often."""
    by_category: defaultdict[str, list[str]] = defaultdict(list)
    for tool in sorted(used, key=lambda tool: -used[tool]):
        card = tools.get(tool)
        category = "" if card is None else card.intelligence.category.value
        by_category[category if category else tool].append(tool)
    for category, found in by_category.items():
        if used[found[0]] >= _MIN_HABIT_USES:
            yield Preference(
                person=person,
                tool=found[0],
                weight=round(used[found[0]], 1),
                category="" if category == found[0] else category,
                over=tuple(found[1 : 1 + _MAX_LESS_USED_TOOLS]),
            )


LearnedKind = Literal["corrections", "outcomes", "preferences", "decisions", "thresholds"]
LEARNED_KINDS: Final[tuple[LearnedKind, ...]] = get_args(LearnedKind)
# Kinds that belong to one person.
PERSONAL_KINDS: Final[tuple[LearnedKind, ...]] = ("corrections", "preferences")
MAX_EVENTS: Final = 5_000
MAX_PACKETS: Final = 50  # packets searched for the latest request of a caller
_MAX_LISTED_TOOLS: Final = 3

FindVisible = Callable[[str | None, str | None, tuple[Scope, ...]], Awaitable["VisibleCatalog"]]


@frozen
class _RecordedRequest:
    """The journal's data about one request that feedback needs."""

    packet: Packet
    called: tuple[str, ...]  # tools without duplicates
    offered: tuple[str, ...]  # best first
    profile: str | None
    scopes: tuple[Scope, ...]
    routed: bool  # answered by this router; False: the caller only got a shortlist


class FeedbackService:
    """Records feedback and reports learned data; one per router. Calls `on_changed` when feedback changes."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        events: EventSink,
        *,
        find_visible: FindVisible,
        get_tools: Callable[[], Snapshot],
        on_changed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._events = events
        self._find_visible = find_visible
        self._get_tools = get_tools
        self._on_changed = on_changed

    async def give_feedback(
        self,
        packet_id: str,
        verdict: FeedbackVerdict | str,
        *,
        by: str,
        tool: str | None = None,
        should_have: str | None = None,
        comment: str = "",
        scopes: tuple[Scope, ...] = (),
    ) -> Feedback:
        """Record one person's feedback on one request. It replaces that person's earlier feedback on it.

        `tool` is the judged tool, by default the called one, or None if no tool was called. Raises if there
        is no such request, or if `should_have` is not a tool that this request could use.
        """
        parsed_verdict = _parse_verdict(verdict)
        if not by.strip():
            message = "feedback needs the name of the person who gives it"
            raise ConfigError(message, hint="Pass the name of the person who gives the feedback as `by`.")
        request = await self._read_request(packet_id)
        judged = await self._find_judged_tool(request, tool)
        right = await self._find_right_tool(request, parsed_verdict, judged, should_have, scopes)
        kept = await self._store.feedback.record(
            Feedback(
                packet_id=packet_id,
                by=by,
                verdict=parsed_verdict,
                request=request.packet.content.original_prompt,
                at=utc_now(),
                tool=judged,
                should_have=right,
                comment=comment,
            )
        )
        self._events.emit(copy_fields(FeedbackGiven, kept))
        await self._store.journal.flush()
        self._on_changed()
        return kept

    async def find_used_tools(self, packet_id: str) -> tuple[str, ...]:
        """Return the tools that a request called, or would have called, without duplicates."""
        return (await self._read_request(packet_id)).called

    async def list_feedback(self, packet_id: str) -> list[Feedback]:
        """Return the feedback on one request, newest first."""
        return await self._store.feedback.list_about(packet_id)

    async def find_latest_request(self, *, caller: str | None = None) -> str | None:
        """Return the id of the latest request of this caller or of an anonymous caller. With None, only
        anonymous requests are searched.
        """
        await self._store.journal.flush()
        recorded = await self._store.journal.list_beginnings(kinds=("packet_received",), limit=MAX_PACKETS)
        for entry in recorded:
            if isinstance(entry.event, PacketReceived):
                header = entry.event.packet.header
                if header.parent_id is None and header.caller in (None, caller):
                    return header.packet_id
        return None

    async def build_overview(self, *, person: str | None = None) -> Learned:
        """Return all learned data, or with `person` what this person may see."""

        return await build_overview(self._settings, self._store, self._get_tools(), person=person)

    async def forget(self, *what: str, by: str, person: str | None = None) -> int:
        """Delete learned data of these kinds (default: all), or one person's part. Return how many."""
        wanted = _parse_kinds(what, person)
        gone = sum([await self._forget_kind(one, person) for one in wanted])
        for one in wanted:
            self._events.emit(LearningForgotten(what=one, by=by, person=person, count=gone))
        await self._store.journal.flush()
        self._on_changed()
        return gone

    async def _forget_kind(self, what: LearnedKind, person: str | None) -> int:
        store = self._store
        match what:
            case "corrections":
                return await store.feedback.clear(by=person)
            case "outcomes":
                return await store.choices.clear()
            case "preferences" | "decisions":
                mark = LearningMark(what=what, person=person or EVERYBODY, at=utc_now())
                await store.learned.set_mark(mark)
                return 0
            case "thresholds":
                await store.learned.set_mark(LearningMark(what=what, person=EVERYBODY, at=utc_now()))
                return await store.learned.clear_thresholds()

    async def _read_request(self, packet_id: str) -> _RecordedRequest:
        await self._store.journal.flush()
        recorded = await self._store.journal.list_events(packet_id=packet_id, limit=MAX_EVENTS)
        request = _build_recorded_request([entry.event for entry in recorded])
        if request is None:
            message = f"no request is recorded under {packet_id[:80]!r}"
            raise CallError(message, hint="`fingerpost ask --explain` and the console show a request's id.")
        return request

    async def _find_judged_tool(self, request: _RecordedRequest, tool: str | None) -> str | None:
        """Return the judged tool: the called one, or the best offered one if the request was only narrowed.

        Return None for an answer without tools: "good" then means that no tool was needed.
        """
        if tool is None:
            if len(request.called) == 1:
                return request.called[0]
            only_offered = not request.called and not request.routed
            return request.offered[0] if only_offered and request.offered else None
        card = self._get_tools().find(tool)
        key = tool if card is None else card.key
        if key not in (*request.called, *request.offered):
            among = ", ".join((*request.called, *request.offered)[:_MAX_LISTED_TOOLS]) or "none"
            message = f"{tool[:80]} was neither used nor offered for this request"
            raise UnknownTool(message, hint=f"There were: {among}.")
        return key

    async def _find_right_tool(
        self,
        request: _RecordedRequest,
        verdict: FeedbackVerdict,
        judged: str | None,
        should_have: str | None,
        scopes: tuple[Scope, ...],
    ) -> str | None:
        if should_have is None:
            return None
        if verdict is FeedbackVerdict.GOOD:
            message = "good feedback cannot name another tool that should have been used"
            raise ConfigError(message, hint="Say bad together with the tool it should have used.")
        caller = request.packet.header.caller
        view = await self._find_visible(caller, request.profile, (*request.scopes, *scopes))
        card = view.visible.find(should_have)
        if card is None:
            near = ", ".join(view.visible.near(should_have))
            message = f"this request could not have used {should_have[:80]!r}: there is no such tool for it"
            hint = f"Did you mean {near}?" if near else "`fingerpost tools` lists them."
            raise UnknownTool(message, hint=hint)
        if card.key == judged:
            raise ConfigError(f"{card.key} is the tool that was used", hint="Say good, or name another tool.")
        return card.key


def _parse_verdict(text: str) -> FeedbackVerdict:
    try:
        return FeedbackVerdict(text)
    except ValueError:
        raise ConfigError(f"{text[:40]!r} is neither good nor bad", hint="Say good or bad.") from None


def _parse_kinds(what: Sequence[str], person: str | None) -> tuple[LearnedKind, ...]:
    possible = LEARNED_KINDS if person is None else PERSONAL_KINDS
    if not what:
        return possible
    wanted: list[LearnedKind] = [one for one in possible if one in what]
    unknown = [one for one in what if one not in possible]
    if unknown:
        message = f"{unknown[0][:40]!r} cannot be forgotten" + ("" if person is None else " for one person")
        raise ConfigError(message, hint=f"There are: {', '.join(possible)}.")
    return tuple(wanted)


def _build_recorded_request(events: Iterable[Event]) -> _RecordedRequest | None:
    packet: Packet | None = None
    called: dict[str, None] = {}
    chosen: dict[str, None] = {}
    offered: tuple[str, ...] = ()
    profile, scopes, routed = None, (), False
    for event in events:
        match event:
            case PacketReceived():
                packet = event.packet
            case RouteBegan():
                profile, scopes, routed = event.profile, event.scopes, True
            case RequestNarrowed() if not offered:
                offered = tuple(one.tool for one in event.narrowing.shortlist.offered)
            case ToolSelected() if event.selection is not None:
                chosen[event.selection.tool] = None
            case CallFinished():
                called[event.tool] = None
            case _:
                pass
    if packet is None:
        return None
    return _RecordedRequest(
        packet=packet,
        called=tuple(called or chosen),
        offered=offered,
        profile=profile,
        scopes=scopes,
        routed=routed,
    )
