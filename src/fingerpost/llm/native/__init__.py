"""Anthropic's and Google's own APIs, for models that are not behind an OpenAI-compatible address.

Both are spoken directly over the HTTP library that is here anyway. The vendors' packages
would bring more than seventy megabytes for two formats of which a router needs text, tools,
a schema and the count of tokens; and the bounds we keep (bytes, time, no redirects) would
have to be put around them from outside.
"""

from fingerpost.llm.native.chat import NativeChat

__all__ = ["NativeChat"]
