"""What every server of our own is made of: tools as records, and one way to serve them."""

from fingerpost.builtin.kit.caller import Caller
from fingerpost.builtin.kit.reply import Link, Question, Reply, ToolRefused, attribute_to
from fingerpost.builtin.kit.server import OwnServer
from fingerpost.builtin.kit.tool import OwnTool

__all__ = ["Caller", "Link", "OwnServer", "OwnTool", "Question", "Reply", "ToolRefused", "attribute_to"]
