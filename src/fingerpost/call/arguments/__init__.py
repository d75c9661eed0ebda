"""Arguments of tool calls: repair, validation against the tool's schema, and translation for another tool."""

from fingerpost.call.arguments.errors import PreparedArguments
from fingerpost.call.arguments.repair import prepare_arguments, translate_arguments
from fingerpost.call.arguments.tool_schema import format_signature

__all__ = ["PreparedArguments", "format_signature", "prepare_arguments", "translate_arguments"]
