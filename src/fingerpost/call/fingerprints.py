"""What makes a call the same call.

A person approves one exact call. Its fingerprint covers the tool, every
argument and the definition they were shown it by, so that a call changed in
any of the three is another call, and the approval says nothing about it.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from fingerpost.records import JsonObject
from fingerpost.records.canonical import to_canonical_json


def compute_call_fingerprint(definition_fingerprint: str, tool: str, arguments: JsonObject) -> str:
    """SHA-256 over the three together. The order of keys does not matter; everything else does.

    `1`, `1.0`, `true` and `"1"` stay four different values: a tool may treat them differently.
    """
    return hashlib.sha256(to_canonical_json([definition_fingerprint, tool, arguments])).hexdigest()


# Parameters that name what a call changes, by the last word of their name: `path`, `issueNumber`.
_TARGET: Final = frozenset(
    (
        "account", "accounts", "address", "bcc", "board", "branch", "bucket", "calendar", "card",
        "cc", "channel", "channels", "chat", "collection", "contact", "customer", "database",
        "dataset", "db", "destination", "directory", "document", "domain", "email", "environment",
        "event", "file", "filename", "folder", "group", "guild", "host", "id", "ids", "index",
        "invoice", "issue", "label", "list", "mailbox", "milestone", "name", "namespace",
        "notebook", "number", "object", "order", "organization", "owner", "page", "path", "paths",
        "playlist", "project", "queue", "recipient", "recipients", "record", "ref", "repo",
        "repository", "resource", "room", "row", "schema", "sheet", "site", "slug", "spreadsheet",
        "table", "tag", "target", "task", "team", "thread", "ticket", "to", "topic", "user",
        "username", "video", "volume", "workspace", "zone",
    )
)  # fmt: skip
# Parameters that hold what is written there, by their whole name. Not among them: whatever decides what is
# done (`command`, `query`, `code`, `method`, `mode`), and what may name targets of its own (`patch`, `data`).
_CONTENT: Final = frozenset(
    (
        "body", "caption", "comment", "content", "contents", "description", "edits", "filetext",
        "inserttext", "markdown", "message", "newstr", "newstring", "newtext", "note", "notes",
        "oldstr", "oldstring", "oldtext", "subject", "summary", "text", "title",
    )
)  # fmt: skip
# What is written to these is what they do: no text of theirs is mere content.
_RUNS: Final = frozenset(
    (
        "agent", "agents", "bash", "browser", "chat", "code", "command", "commands", "console",
        "eval", "evaluate", "exec", "execute", "invoke", "key", "keys", "keyboard", "keystrokes",
        "process", "program", "prompt", "python", "query", "repl", "request", "run", "script",
        "shell", "sql", "ssh", "subagent", "terminal", "tmux", "type",
    )
)  # fmt: skip
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def find_target(operation: str, arguments: JsonObject) -> JsonObject:
    """The arguments that say what a call changes: everything but the content that it writes there.

    A grant for a conversation covers further calls in which these are the same. Where no argument names
    a target, or the operation runs what it is given, nothing may differ: all of them are part of it.
    """
    if not _RUNS.isdisjoint(word.lower() for word in _WORD.findall(operation)):
        return arguments
    target = {name: value for name, value in arguments.items() if not _is_content(name)}
    return target if any(map(_is_target, target)) else arguments


def _is_target(parameter: str) -> bool:
    words = _WORD.findall(parameter)
    return bool(words) and words[-1].lower() in _TARGET


def _is_content(parameter: str) -> bool:
    return "".join(_WORD.findall(parameter)).lower() in _CONTENT


def build_grant_key(
    operation: str, definition_fingerprint: str | None, arguments: JsonObject, *, caller: str | None
) -> str:
    """What a grant for a conversation is bound to beside it: caller, operation as defined, and target."""
    bound = [operation, definition_fingerprint, caller, find_target(operation, arguments)]
    return hashlib.sha256(to_canonical_json(bound)).hexdigest()
