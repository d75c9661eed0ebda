"""Analytics over the journal: one line per request, and figures over time."""

from fingerpost.analytics.journal_reader import JournalReader as JournalReader
from fingerpost.analytics.records import Bucket as Bucket
from fingerpost.analytics.records import CalibrationPoint as CalibrationPoint
from fingerpost.analytics.records import Counted as Counted
from fingerpost.analytics.records import Figures as Figures
from fingerpost.analytics.records import PacketDetail as PacketDetail
from fingerpost.analytics.records import PacketLine as PacketLine
from fingerpost.analytics.records import PacketPage as PacketPage
from fingerpost.analytics.records import PacketQuery as PacketQuery
from fingerpost.analytics.records import Spread as Spread
from fingerpost.analytics.records import ToolCount as ToolCount
from fingerpost.analytics.records import UserCount as UserCount
