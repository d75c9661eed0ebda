"""Everything that was learned, gathered to be looked at."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import anyio.to_thread

from fingerpost.catalog import Snapshot
from fingerpost.narrow.learning import PastDecisions, Preferences
from fingerpost.records import (
    Choice,
    Feedback,
    Learned,
    LearnedCorrection,
    LearnedUse,
    LearningCheck,
    Preference,
    utc_now,
)
from fingerpost.settings import Settings
from fingerpost.store import Store
from fingerpost.store.learned import EVERYBODY

CHECK_NAME: Final = "learning"  # under which the comparison is kept among the evals
FLAGS: Final = (
    "learned_use",
    "learn_from_feedback",
    "decision_cache",
    "preferences",
    "adaptive_thresholds",
)
MAX_SHOWN: Final = 100  # lines of each kind
_REQUESTS: Final = 3
_MIN_HABIT_USES: Final = 1.0
_ENDED_OUTCOMES: Final = 3


async def build_overview(settings: Settings, store: Store, tools: Snapshot, *, person: str | None) -> Learned:
    """What was learned, as this person may see it; None: whoever runs the house."""
    said = await store.feedback.list_recent()
    choices = await store.choices.list_recent()
    habits_since = await store.learned.get_marks("preferences")
    decisions_since = await store.learned.get_marks("decisions")
    thresholds = await store.learned.list_thresholds()
    check = await _read_check(store)

    def gather() -> Learned:
        now = utc_now()
        flags = settings.flags
        return Learned(
            flags={name: bool(getattr(flags, name)) for name in FLAGS},
            corrections=tuple(_count_corrections(said, person))[:MAX_SHOWN],
            uses=tuple(_count_uses(choices))[:MAX_SHOWN],
            preferences=tuple(_find_preferences(choices, said, habits_since, now, settings, tools, person))[
                :MAX_SHOWN
            ],
            decisions=_count_decisions(choices, said, decisions_since, now, settings),
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
    """By the pair of tools, the most frequent first. Others' words are counted and not shown."""
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
            requests=tuple(dict.fromkeys(one.request for one in seen))[:_REQUESTS],
        )


def _count_uses(choices: Sequence[Choice]) -> Iterator[LearnedUse]:
    worked = Counter(choice.tool for choice in choices if choice.worked)
    failed = Counter(choice.tool for choice in choices if not choice.worked)
    for tool in sorted({*worked, *failed}, key=lambda tool: (-worked[tool] - failed[tool], tool)):
        yield LearnedUse(tool=tool, worked=worked[tool], failed=failed[tool])


def _find_preferences(
    choices: Sequence[Choice],
    feedback: Sequence[Feedback],
    marks: Mapping[str, datetime],
    now: datetime,
    settings: Settings,
    tools: Snapshot,
    person: str | None,
) -> Iterator[Preference]:
    habits = Preferences()
    half_life = timedelta(days=settings.learning.half_life_days)
    habits.learn(choices, feedback, now=now, half_life=half_life, marks=marks)
    for name in habits.people if person is None else (person,):
        yield from _find_habits(name, habits.get_for(name), tools)


def _find_habits(person: str, used: Mapping[str, float], tools: Snapshot) -> Iterator[Preference]:
    """Their tools, the most used of each category, with the others of it they use less."""
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
                over=tuple(found[1 : 1 + _ENDED_OUTCOMES]),
            )


def _count_decisions(
    choices: Sequence[Choice],
    feedback: Sequence[Feedback],
    marks: Mapping[str, datetime],
    now: datetime,
    settings: Settings,
) -> int:
    oldest = now - timedelta(days=settings.learning.decision_days)
    decisions = PastDecisions()
    decisions.learn(choices, feedback, since=max(oldest, marks.get(EVERYBODY, oldest)))
    return decisions.count
