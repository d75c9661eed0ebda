"""What the journal says when it is read as a whole: a line for each request, figures over time."""

from fingerpost.insight.records import PacketDetail, PacketLine, PacketPage, PacketQuery

__all__ = ["PacketDetail", "PacketLine", "PacketPage", "PacketQuery"]
