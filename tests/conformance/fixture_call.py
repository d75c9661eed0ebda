"""One call of a fixture: what came in, and how it asks the client back, the same in both eras.

A fixture says `await call.ask({...})` and gets answers. In the handshake era
that is a request to the client; in 2026-07-28 the first run ends with
`input_required` and the fixture runs again with the answers.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata

Object = dict[str, Any]

MODERN: Final = "2026-07-28"
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

KEY = secrets.token_bytes(32)


class InputRequired(Exception):
    """The fixture cannot go on before the client answers."""

    def __init__(self, questions: Object, state: str | None) -> None:
        super().__init__("input required")
        self.result: Object = {"resultType": "input_required", "inputRequests": questions}
        if state is not None:
            self.result["requestState"] = state


def seal(state: Object) -> str:
    """State the client carries for us, signed so that it cannot be changed on the way."""
    body = base64.urlsafe_b64encode(json.dumps({**state, "nonce": secrets.token_hex(4)}).encode()).decode()
    return f"{body}.{hmac.new(KEY, body.encode(), hashlib.sha256).hexdigest()}"


def unseal(sealed: str) -> Object:
    """What `seal` was given; refused when a byte of it changed."""
    body, _, signature = sealed.partition(".")
    expected = hmac.new(KEY, body.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), signature.encode()):
        raise MCPError(types.INVALID_PARAMS, "requestState was not issued by this server")
    return json.loads(base64.urlsafe_b64decode(body))


@dataclass(frozen=True)
class FixtureCall:
    """A request to a fixture."""

    context: ServerRequestContext[Any, Any]

    @property
    def modern(self) -> bool:
        return self.context.protocol_version >= MODERN

    @property
    def params(self) -> Mapping[str, Any]:
        return self.context.params or {}

    @property
    def arguments(self) -> Object:
        return self.params.get("arguments") or {}

    @property
    def meta(self) -> Object:
        return self.params.get("_meta") or {}

    def can(self, capability: str) -> bool:
        """Whether the client declared this capability."""
        declared = self.context.session.client_capabilities
        return declared is not None and getattr(declared, capability) is not None

    def state(self) -> Object | None:
        """The state an earlier round gave out, if the client brought it."""
        sealed = self.params.get("requestState")
        return None if sealed is None else unseal(sealed)

    async def ask(self, questions: Object, state: Object | None = None) -> Object:
        """The client's answers to all of these questions, by the same keys."""
        if not self.modern:
            return {key: await self._request(question) for key, question in questions.items()}
        answers: Object = self.params.get("inputResponses") or {}
        if questions.keys() <= answers.keys():
            return answers
        raise InputRequired(questions, None if state is None else seal(state))

    async def _request(self, question: Object) -> Object:
        sent: types.ServerRequest
        expected: type[types.ElicitResult | types.CreateMessageResult | types.ListRootsResult]
        match question["method"]:
            case "elicitation/create":
                sent, expected = types.ElicitRequest.model_validate(question), types.ElicitResult
            case "sampling/createMessage":
                sent, expected = (
                    types.CreateMessageRequest.model_validate(question),
                    types.CreateMessageResult,
                )
            case _:
                sent, expected = types.ListRootsRequest.model_validate(question), types.ListRootsResult
        belongs = ServerMessageMetadata(related_request_id=self.context.request_id)
        answer = await self.context.session.send_request(sent, expected, metadata=belongs)
        return answer.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def log(self, text: str) -> None:
        """A log message at level info, unless a 2026-07-28 client did not ask for it."""
        level = self.meta.get(types.LOG_LEVEL_META_KEY)
        if self.modern and (level is None or LEVELS.index(level) > LEVELS.index("info")):
            return
        notification = types.LoggingMessageNotification(
            params=types.LoggingMessageNotificationParams(level="info", data=text, logger="fixture")
        )
        await self.context.session.send_notification(notification, self.context.request_id)

    async def progress(self, done: float, total: float) -> None:
        await self.context.session.report_progress(done, total)
