"""Arguments as a model wrote them, made to fit the tool's schema, or refused with a reason.

`prepare` puts right what is certainly meant, `translate` says the same to
another tool, `signature` tells a model in one line what a tool takes.
"""

from fingerpost.call.arguments.errors import PreparedArguments
from fingerpost.call.arguments.repair import prepare_arguments, translate_arguments
from fingerpost.call.arguments.tool_schema import format_signature

__all__ = ["PreparedArguments", "format_signature", "prepare_arguments", "translate_arguments"]
