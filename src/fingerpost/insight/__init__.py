"""What the journal says when it is read as a whole: a line for each request, figures over time."""

from fingerpost.insight.figures import (
    Bucket,
    CalibrationPoint,
    Counted,
    Figures,
    Spread,
    ToolCount,
    UserCount,
)
from fingerpost.insight.ledger import JournalReader
from fingerpost.insight.records import PacketDetail, PacketLine, PacketPage, PacketQuery

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
