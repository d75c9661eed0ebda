"""What every server of our own is made of: tools as records, and one way to serve them."""

from fingerpost.builtin.kit.caller import ToolCaller
from fingerpost.builtin.kit.reply import ResultLink, ToolQuestion, ToolRefused, ToolReply, attribute_to
from fingerpost.builtin.kit.server import BuiltinServer
from fingerpost.builtin.kit.tool import BuiltinTool

__all__ = [
    "BuiltinServer",
    "BuiltinTool",
    "ResultLink",
    "ToolCaller",
    "ToolQuestion",
    "ToolRefused",
    "ToolReply",
    "attribute_to",
]
