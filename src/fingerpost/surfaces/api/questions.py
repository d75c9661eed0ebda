"""Requests that ended with a question to the person, kept until it is answered or forgotten."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from fingerpost.router.route import Route
from fingerpost.surfaces.api.operation import ApiProblem

MAX_QUESTIONS: Final = 300

_UNKNOWN_QUESTION_MESSAGE = (
    "Its question is not known here: it was answered, or asked too long ago, or by another. "
    "Ask the whole request again."
)


class OpenQuestions:
    """The newest of them, by packet. Each is answered once, by whoever was asked."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, Route] = OrderedDict()

    def remember(self, route: Route) -> None:
        """Remember a route that asks something."""
        if route.question is None or route.question.pending_id is not None:
            return
        self._asked[route.packet_id] = route
        if len(self._asked) > MAX_QUESTIONS:
            self._asked.popitem(last=False)

    def take(self, caller: str, packet_id: str | None) -> Route | None:
        """The route this answers; None where nothing is answered. Raises `ApiProblem`."""
        if packet_id is None:
            return None
        route = self._asked.get(packet_id)
        if route is None or route.packet.header.caller != caller:
            raise ApiProblem(404, "There is no such question", _UNKNOWN_QUESTION_MESSAGE)
        return self._asked.pop(packet_id)
