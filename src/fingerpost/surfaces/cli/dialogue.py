"""One request after another with the person beside it: asked, answered, approved, asked back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from fingerpost.surfaces.cli.backstage import Backstage, Hear
from fingerpost.surfaces.cli.speaking import Speech

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from fingerpost.llm import OnText
    from fingerpost.records import Approval, Pending
    from fingerpost.router import Asking, Route

    Working: TypeAlias = Callable[[OnText | None], Coroutine[Any, Any, Route]]

MOST_APPROVALS: Final = 50  # of one request: a model that finds ever more to approve is not followed

Decide: TypeAlias = "Callable[[Pending], Approval | None]"


class Dialogue:
    """Has requests answered and shows the answers as they come. `quiet`: shows nothing.

    `limits` hold for what is resumed, too.
    """

    def __init__(self, stage: Backstage, *, quiet: bool = False, limits: Asking | None = None) -> None:
        self.stage = stage
        self._quiet = quiet
        self._limits: Asking = limits or {}

    def ask(self, text: str, asking: Asking) -> Route:
        """The route of one request."""
        router = self.stage.router
        return self._followed(lambda on_text: router.route(text, **{**asking, "on_text": on_text}))

    def follow(self, asked: Route | None, text: str, asking: Asking) -> Route:
        """The route of a line that may answer what was asked before it.

        What does not answer it is a request of its own, and so is a question: nobody is kept at ours.
        """
        if asked is None or asked.question is None or text.rstrip().endswith("?"):
            return self.ask(text, asking)
        router = self.stage.router
        route = self._followed(lambda on_text: router.reply(asked, text, **{**asking, "on_text": on_text}))
        return self.ask(text, asking) if route.question == asked.question else route

    def resume(self, route: Route | str, approval: Approval | None = None) -> Route:
        """How it goes on after a person has decided."""
        router = self.stage.router
        return self._followed(
            lambda on_text: router.resume(route, approval, **{**self._limits, "on_text": on_text})
        )

    def settle(self, route: Route, decide: Decide) -> Route:
        """Go on as long as the person says something about what waits."""
        for _ in range(MOST_APPROVALS):
            if route.pending is None or (approval := decide(route.pending)) is None:
                break
            route = self.resume(route, approval)
        return route

    def _followed(self, working: Working) -> Route:
        if self._quiet:
            return self.stage.run(lambda _: working(None))
        speech = Speech()

        def work(hear: Hear) -> Coroutine[Any, Any, Route]:
            return working(hear)

        try:
            route = self.stage.run(work, speech.hear)
        except BaseException:
            speech.stop()
            raise
        # What waits for the person is not the answer: whoever asks them shows it.
        speech.end("" if route.pending is not None or route.question is not None else route.answer)
        return route
