"""What makes a call the same call.

A person approves one exact call. Its fingerprint covers the tool, every
argument and the definition they were shown it by, so that a call changed in
any of the three is another call, and the approval says nothing about it.
"""

from __future__ import annotations

import hashlib

from fingerpost.records import JsonObject
from fingerpost.records.canonical import canonical


def call_fingerprint(definition_fingerprint: str, tool: str, arguments: JsonObject) -> str:
    """SHA-256 over the three together. The order of keys does not matter; everything else does.

    `1`, `1.0`, `true` and `"1"` stay four different values: a tool may treat them differently.
    """
    return hashlib.sha256(canonical([definition_fingerprint, tool, arguments])).hexdigest()


def operation_key(operation: str, definition_fingerprint: str | None) -> str:
    """What a grant for a conversation is bound to: the operation, as defined when it was granted."""
    return f"{operation}@{definition_fingerprint[:16]}" if definition_fingerprint else operation
