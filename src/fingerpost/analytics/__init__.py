"""Analytics over the journal: one line per request, and figures over time."""

from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.analytics.records import (
    Bucket,
    CalibrationPoint,
    Counted,
    Figures,
    PacketDetail,
    PacketLine,
    PacketPage,
    PacketQuery,
    Spread,
    ToolCount,
    UserCount,
)

__all__ = [
    "Bucket",
    "CalibrationPoint",
    "Counted",
    "Figures",
    "JournalReader",
    "PacketDetail",
    "PacketLine",
    "PacketPage",
    "PacketQuery",
    "Spread",
    "ToolCount",
    "UserCount",
]
