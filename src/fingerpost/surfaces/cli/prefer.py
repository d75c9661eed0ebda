"""`fingerpost prefer`: quick or thorough answers, kept for the person at this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fingerpost.surfaces.cli.house import Asked, any_router, read_settings, run
from fingerpost.surfaces.cli.person import person
from fingerpost.surfaces.cli.screen import print_json, print_lines

if TYPE_CHECKING:
    from fingerpost.records import Effort
    from fingerpost.router import Router


def set_preference(*, what: str | None, **options: Any) -> int:
    """Say whether you want quick or thorough answers, or see what you said. `usual` takes it back."""
    loaded = read_settings(Asked(options["config"], options["servers"], options["as_json"]))

    async def work() -> int:
        async with any_router(loaded) as router:
            who = person()
            effort = await keep_preference(router, who, what)
            if options["as_json"]:
                print_json({"caller": who, "effort": effort})
            else:
                print_lines([preference_line(who, effort)])
            return 0

    return run(work)


async def keep_preference(router: Router, who: str, what: str | None) -> Effort | None:
    """Keep one of `CHOICES`, if it is given; what this person prefers now."""
    if what is not None:
        await router.prefer(who, None if what == "usual" else what)
    return router.profiles.efforts.get(who)


def preference_line(who: str, effort: Effort | None) -> str:
    return f"{who} gets {effort or 'the usual'} answers"
