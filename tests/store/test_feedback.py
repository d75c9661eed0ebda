"""Feedback, marks and thresholds, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fingerpost.records import EVERYBODY, Feedback, FeedbackVerdict, LearningMark, Threshold
from tests.kit.stores import OpenStore
from tests.requirements import proves

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def create_feedback(packet: str, by: str, verdict: str = "good", *, minutes: int = 0) -> Feedback:
    return Feedback(
        packet_id=packet,
        by=by,
        verdict=FeedbackVerdict(verdict),
        request="what changed?",
        at=NOW + timedelta(minutes=minutes),
        tool="git/log",
        comment="מצוין \x00 fine",
    )


@proves("L1")
async def test_one_word_of_each_person_about_each_request(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.feedback.record(create_feedback("pkt_1", "dana"))
        await store.feedback.record(create_feedback("pkt_1", "kim", minutes=1))
        await store.feedback.record(create_feedback("pkt_2", "dana", minutes=2))
        last = await store.feedback.record(create_feedback("pkt_1", "dana", "bad", minutes=3))
        found = await store.feedback.list_recent()
        assert [(one.packet_id, one.by, one.verdict.value) for one in found] == [
            ("pkt_1", "dana", "bad"),
            ("pkt_2", "dana", "good"),
            ("pkt_1", "kim", "good"),
        ]
        assert found[0] == last
        assert [one.by for one in await store.feedback.list_about("pkt_1")] == ["dana", "kim"]
        assert await store.feedback.list_recent(1) == [last]
        assert await store.feedback.clear(by="dana") == 2
        assert await store.feedback.clear() == 1
        assert await store.feedback.list_recent() == []


@proves("L6", "L7")
async def test_marks_and_thresholds_are_replaced_and_seen_as_a_new_version(open_store: OpenStore) -> None:
    async with open_store() as store:
        before = await store.learned.get_version()
        await store.learned.set_mark(LearningMark(what="preferences", person="dana", at=NOW))
        await store.learned.set_mark(LearningMark(what="preferences", person=EVERYBODY, at=NOW))
        await store.learned.set_mark(
            LearningMark(what="preferences", person="dana", at=NOW + timedelta(days=1))
        )
        assert await store.learned.get_marks("preferences") == {
            "dana": NOW + timedelta(days=1),
            EVERYBODY: NOW,
        }
        assert await store.learned.get_marks("decisions") == {}
        assert await store.learned.get_version() != before
        for value in (0.65, 0.62):
            await store.learned.set_threshold(
                Threshold(name="t", base=0.7, value=value, at=NOW, reason="so", samples=60)
            )
        assert [one.value for one in await store.learned.list_thresholds()] == [0.62]
        assert await store.learned.clear_thresholds() == 1
        assert await store.learned.list_thresholds() == []
