"""Messages of MCP that are nearly right: the same ones for the same seed.

Each starts from a sound message and is changed in one to three places, as a tree (a value of another type,
a member lost or doubled, an id used again) or as text (cut off, nested, not UTF-8). Run as a program this
is a server of 2025-11-25 over its standard streams that answers with them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any, cast

OLD = "2025-11-25"
MODERN = "2026-07-28"
TOOL: dict[str, Any] = {
    "name": "look",
    "description": "Look something up.",
    "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "annotations": {"readOnlyHint": True},
}


@dataclass(frozen=True)
class Raw:
    """JSON, or nearly, that is written as it stands."""

    text: str


ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, -(2**63), 10**30, 1.5, -0.0, "", "a", "0", "\x00",
    "\ud800", "https://example.org/", "file:///etc/passwd", "2026-07-28", "notifications/progress",
    "\u202e\u200b", "é" * 50, "x" * 3000, [], {}, [None], [[]], {"": ""}, {"__proto__": {}}, {"a": {"b": 1}},
    Raw("1e999"), Raw("-1e999"), Raw("NaN"), Raw("9" * 4301), Raw("0." + "3" * 400), Raw('"\\ud800"'),
    Raw('{"a":1,"a":2}'), Raw("[" * 60 + "]" * 60), Raw("[" * 150 + "]" * 150), Raw("[" * 3000 + "]" * 3000),
    Raw('{"a":' * 250 + "1" + "}" * 250),
)  # fmt: skip
MEMBERS = ("_meta", "id", "method", "result", "error", "extra", "")
FORM: dict[str, Any] = {
    "message": "Which colour?",
    "requestedSchema": {
        "type": "object",
        "properties": {"colour": {"type": "string"}},
        "required": ["colour"],
    },
}
SAMPLE: dict[str, Any] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
    "maxTokens": 5,
}
BLOCKS: tuple[dict[str, Any], ...] = (
    {"type": "text", "text": "done", "annotations": {"audience": ["user"], "priority": 0.5}},
    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "book://a", "name": "a"},
    {"type": "resource", "resource": {"uri": "book://a", "text": "a", "mimeType": "text/plain"}},
    {"type": "resource", "resource": {"uri": "book://b", "blob": "aGk="}},
)


def write(value: Any) -> str:
    """As JSON; half characters and `Raw` as they are."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return "{" + ",".join(f"{json.dumps(str(name))}:{write(each)}" for name, each in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(write(each) for each in cast("list[Any]", value)) + "]"
    return json.dumps(value)


class Cases:
    """One stream of cases."""

    def __init__(self, seed: int | str) -> None:
        self.random = Random(seed)

    # -- changing -----------------------------------------------------------------------------------

    def odd(self) -> Any:
        return deepcopy(self.random.choice(ODD))

    def mutate(self, message: Any, *, times: int | None = None) -> Any:
        """A copy with some places changed."""
        message = json.loads(json.dumps(message))
        for _ in range(self.random.randint(1, 3) if times is None else times):
            message = self._mutate_once(message)
        return message

    def _mutate_once(self, message: Any) -> Any:
        places: list[tuple[Any, Any]] = []
        pending: list[Any] = [message]
        while pending:
            node = pending.pop()
            if isinstance(node, Raw) or not isinstance(node, dict | list):
                continue
            keys: list[Any] = list(cast("dict[str, Any]", node)) if isinstance(node, dict) else []
            keys = keys or list(range(len(cast("list[Any]", node))))
            places += [(node, key) for key in keys]
            pending += [node[key] for key in keys]
        if not places:
            return self.odd()
        node, key = self.random.choice(places)
        match self.random.randrange(7):
            case 0 | 1 | 2:
                node[key] = self.odd()
            case 3:
                del node[key]
            case 4:
                node[key] = [node[key]]
            case 5 if isinstance(node, dict):
                node[str(key).upper()] = node[key]
                del node[key]
            case _ if isinstance(node, dict):
                node[self.random.choice(MEMBERS)] = self.odd()
            case _:
                node[key] = {"in": node[key]}
        return message

    def garble(self, text: str) -> bytes:
        """The text, damaged as bytes."""
        data = text.encode("utf-8", "surrogatepass")
        at = self.random.randrange(len(data) + 1)
        match self.random.randrange(9):
            case 0:
                return data[:at]
            case 1:
                return data[:at] + bytes([self.random.randrange(256)]) + data[at + 1 :]
            case 2:
                return data[:at] + b"\xff\xfe" + data[at:]
            case 3:
                return b"\xef\xbb\xbf" + data
            case 4:
                return data + b"}" + data
            case 5:
                return b"[" + data + b"," + data + b"]"
            case 6:
                return data.replace(b'"id"', b'"id":7,"id"', 1)
            case 7:
                return b"[" * 100_000
            case _:
                return self.random.randbytes(self.random.randrange(60))

    def an_id(self) -> Any:
        known = (1, 1, 2, "1", "a", "a", 0, -5, 2**60, "x" * 300, "\ud800", "")
        return self.random.choice(known)

    # -- what a server sends ------------------------------------------------------------------------

    def aside(self, request: Any) -> str:
        """A notification or a request of a server, sound as JSON-RPC, while it works on this request."""
        choose = self.random.choice
        token = choose([request, request, str(request), 1, "other"])
        notices: list[tuple[str, Any]] = [
            (
                "notifications/progress",
                {"progressToken": token, "progress": 1, "total": 3, "message": "on it"},
            ),
            ("notifications/message", {"level": "info", "logger": "a", "data": {"at": "work"}}),
            ("notifications/cancelled", {"requestId": choose([request, 1, "a"]), "reason": "no"}),
            ("notifications/tools/list_changed", {}),
            ("notifications/resources/updated", {"uri": "book://a"}),
            ("notifications/elicitation/complete", {"elicitationId": "a"}),
            ("notifications/unknown", {"a": 1}),
        ]
        questions: list[tuple[str, Any]] = [
            ("ping", {}),
            ("elicitation/create", FORM),
            (
                "elicitation/create",
                {"mode": "url", "message": "?", "url": "https://a/", "elicitationId": "a"},
            ),
            ("sampling/createMessage", SAMPLE),
            ("roots/list", {}),
            ("tools/call", {"name": "look", "arguments": {}}),
            ("unknown/method", {"a": [1]}),
        ]
        asks = self.random.random() < 0.35
        method, params = choose(questions if asks else notices)
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if asks:
            message["id"] = self.an_id()
        if self.random.random() < 0.9:
            changed = self.mutate(params) if self.random.random() < 0.8 else params
            message["params"] = changed if isinstance(changed, dict) else {}
        return write(message)

    def reply(self, request: Any, method: str = "tools/call") -> bytes:
        """What a server answers with, right in a third of cases."""
        sound: dict[str, Any] = {"jsonrpc": "2.0", "id": request, "result": self._result(method)}
        if self.random.random() < 0.15:
            error = {"code": self.random.choice([-32603, -32042, 0]), "message": "no", "data": {"a": 1}}
            sound = {"jsonrpc": "2.0", "id": request, "error": error}
        chance = self.random.random()
        if chance < 0.33:
            return write(sound).encode("utf-8", "surrogatepass")
        if chance < 0.55:
            part = "result" if "result" in sound else "error"
            sound[part] = self.mutate(sound[part])
            return write(sound).encode("utf-8", "surrogatepass")
        if chance < 0.85:
            return write(self.mutate(sound)).encode("utf-8", "surrogatepass")
        return self.garble(write(sound))

    def _result(self, method: str) -> Any:
        choose = self.random.choice
        if method == "tools/list":
            return {
                "tools": [TOOL, {**TOOL, "name": choose(["b", "look", "x" * 200])}],
                "nextCursor": choose([None, "a"]),
            }
        if method in ("resources/list", "prompts/list", "resources/templates/list"):
            return {method.split("/")[-2]: [{"name": "a", "uri": "book://a"}]}
        if self.random.random() < 0.2:
            asked = {name: {"method": "elicitation/create", "params": FORM} for name in ("a", "b")}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}
        content = [choose(BLOCKS) for _ in range(self.random.randrange(4))]
        return {
            "content": content,
            "structuredContent": {"a": [1, {"b": None}]},
            "isError": choose([False, False, True]),
        }

    # -- what a client sends ------------------------------------------------------------------------

    def request(self, era: str, *, tools: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, str]]:
        """A sound message of a client, and the headers that belong to it."""
        choose = self.random.choice
        name = choose(tools)
        asked: list[tuple[str, dict[str, Any]]] = [
            ("tools/call", {"name": name, "arguments": {"n": 1}}),
            ("tools/call", {"name": name, "arguments": {}, "inputResponses": {"a": {}}, "requestState": "s"}),
            ("tools/call", {"name": "find_tools", "arguments": {"request": "look something up"}}),
            ("tools/list", {}), ("tools/list", {"cursor": "1"}), ("prompts/list", {}), ("resources/list", {}),
            ("resources/templates/list", {}), ("resources/read", {"uri": "book://a"}),
            ("prompts/get", {"name": "a", "arguments": {"b": "c"}}),
            ("completion/complete", {"ref": {"type": "ref/prompt", "name": "a"}, "argument": {"name": "b"}}),
            ("logging/setLevel", {"level": "info"}), ("ping", {}), ("resources/subscribe", {"uri": "book://a"}),
            ("unknown/method", {}), ("server/discover", {}),
            ("subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
            ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["book://a"]}}),
            ("initialize", {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "a"}}),
        ]  # fmt: skip
        method, params = choose(asked)
        if era == MODERN:
            meta: dict[str, Any] = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "roots": {}},
                "io.modelcontextprotocol/clientInfo": {"name": "a", "version": "1"},
            }
            headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
            if isinstance(params.get("name"), str):
                headers["mcp-name"] = params["name"]
            params = {**params, "_meta": meta}
        else:
            headers = {"mcp-protocol-version": OLD}
            if self.random.random() < 0.3:
                params = {**params, "_meta": {"progressToken": self.an_id()}}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self.random.randrange(10**9), "method": method}
        message["params"] = params
        match self.random.randrange(12):
            case 0:
                del message["id"]
                message["method"] = choose(
                    ["notifications/initialized", "notifications/cancelled", "notifications/a"]
                )
            case 1:
                message = {
                    "jsonrpc": "2.0",
                    "id": choose(["fingerpost-1", 1, None]),
                    "result": {"action": "accept"},
                }
            case _:
                pass
        return message, headers

    def request_body(self, message: Any) -> bytes:
        """The message as it is sent, right in a quarter of cases."""
        chance = self.random.random()
        if chance < 0.25:
            return write(message).encode("utf-8", "surrogatepass")
        if chance < 0.85:
            return write(self.mutate(message)).encode("utf-8", "surrogatepass")
        if chance < 0.9:
            return write([message, self.mutate(message)]).encode("utf-8", "surrogatepass")
        return self.garble(write(message))

    def mutate_headers(self, headers: dict[str, str]) -> dict[str, str]:
        if self.random.random() > 0.15:
            return headers
        odd = [
            "",
            "x",
            "\xe9",
            "0" * 500,
            "application/json",
            "text/event-stream",
            "*/*",
            "text/plain",
            MODERN,
            OLD,
        ]
        names = [
            *headers,
            "accept",
            "content-type",
            "mcp-session-id",
            "last-event-id",
            "content-length",
            "origin",
        ]
        return {**headers, self.random.choice(names): self.random.choice(odd)}

    def other_surface(self) -> tuple[str, str, Any]:
        """A request to `/api` or `/v1`: method, path and body."""
        messages = [{"role": "user", "content": "look something up"}]
        chat: dict[str, Any] = {
            "model": "fingerpost",
            "messages": messages,
            "stream": False,
            "temperature": 0.5,
        }
        return self.random.choice(
            [
                ("POST", "/api/call", {"tool": "good/look", "arguments": {"n": 1}, "conversation": "a"}),
                ("POST", "/api/call", {"tool": "evil/look", "arguments": {"n": 1}, "seconds": 5}),
                ("POST", "/api/route", {"request": "look something up"}),
                ("POST", "/v1/chat/completions", chat),
                ("POST", "/v1/responses", {"model": "fingerpost", "input": "look something up"}),
                ("GET", "/v1/models", None),
                ("GET", "/api/tools", None),
                ("GET", "/api/packets", None),
                ("PUT", "/api/me/preference", {"prefer": "quick"}),
                ("POST", "/api/approvals/apr_1/approve", {"reason": "a"}),
            ]
        )


def _serve(seed: str) -> None:
    """A server of the older era on this process's standard streams."""
    cases = Cases(seed)
    greeting = {
        "protocolVersion": OLD,
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "evil", "version": "1"},
    }
    say: Callable[[bytes], int] = sys.stdout.buffer.write
    for line in sys.stdin.buffer:
        asked: dict[str, Any] = json.loads(line)
        number, method = asked.get("id"), asked.get("method")
        if number is None or method is None:
            continue
        if method == "tools/call":
            for _ in range(cases.random.randrange(20)):
                say(cases.aside(number).encode("utf-8", "surrogatepass").replace(b"\n", b" ") + b"\n")
            say(cases.reply(number).replace(b"\n", b" ") + b"\n")
            # Whatever that was: the caller is not to wait for its deadline.
            say(json.dumps({"jsonrpc": "2.0", "id": number, "result": {"content": []}}).encode() + b"\n")
        elif method in ("initialize", "tools/list", "ping"):
            results: dict[str, Any] = {"initialize": greeting, "tools/list": {"tools": [TOOL]}, "ping": {}}
            say(json.dumps({"jsonrpc": "2.0", "id": number, "result": results[method]}).encode() + b"\n")
        else:
            error = {"code": -32601, "message": "no"}
            say(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve(sys.argv[1])
