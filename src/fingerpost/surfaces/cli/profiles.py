"""`fingerpost profiles`: which there are, what each comes to, and new ones from examples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fingerpost.choose.instructions import directives_under, persona_under, tool_instructions
from fingerpost.choose.prompts import system_prompt
from fingerpost.errors import ConfigError
from fingerpost.redaction import scrub_json
from fingerpost.settings import check as find_problems
from fingerpost.settings.problems import dotted
from fingerpost.settings.profiles import examples
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.house import Asked, connect, open_router, read_settings, run
from fingerpost.surfaces.cli.screen import count, first_sentence, output, plain, print_json, table
from fingerpost.surfaces.cli.speaking import readable
from fingerpost.surfaces.cli.tools import effect_words

if TYPE_CHECKING:
    from fingerpost.router import Router
    from fingerpost.router.sight import View
    from fingerpost.settings import Loaded, ProfileFiles, ProfileSettings


def list_profiles(*, config: Path | None, servers: Path | None, as_json: bool) -> int:
    """List all profiles."""
    loaded = read_settings(Asked(config, servers, as_json))
    found = sorted(loaded.settings.profiles.items())
    if as_json:
        print_json([{"name": name, "written": _written(loaded, name), **_plain(one)} for name, one in found])
        return 0
    if not found:
        click.echo("There are no profiles. `fingerpost profiles add` lists examples to begin with.")
        return 0
    made = table(None, "profile", "for", "who", "meant", "written")
    for name, one in found:
        cells = (name, one.description or "", _who(one), _meant(one), _written(loaded, name))
        made.add_row(*(plain(cell) for cell in cells))
    output().print(made)
    return 0


def _plain(profile: ProfileSettings) -> dict[str, Any]:
    return profile.model_dump(mode="json", exclude_unset=True)


def _who(profile: ProfileSettings) -> str:
    named = [*profile.users, *(f"plan {plan}" for plan in profile.plans)]
    return ", ".join(named) or "everybody"


def _meant(profile: ProfileSettings) -> str:
    versions = f"API {', '.join(profile.api_versions)}" if profile.api_versions else ""
    parts = (versions, "by default" if profile.default else "")
    return "; ".join(part for part in parts if part) or "by name"


def _written(loaded: Loaded, name: str) -> str:
    """The file of a profile, and the line its first word stands on."""
    prefix = f"{dotted(('profiles', name))}."
    places = [origin for path, origin in loaded.origins.items() if path.startswith(prefix)]
    first = min(places, key=lambda origin: origin.line or 0, default=None)
    return "" if first is None else str(first)


# -- one of them ------------------------------------------------------------------------------------


def show_profile(*, name: str, prompt: bool, **options: Any) -> int:
    """Show what the profile NAME comes to with the servers there are: its tools, and its prompt."""
    loaded = read_settings(Asked(options["config"], options["servers"], options["as_json"]))

    async def work() -> int:
        async with open_router(loaded) as router:
            router.profiles.known(name)  # an unknown name is told of first
            await connect(router, wait=options["wait"])
            view = await router.look(profile=name)
            if options["as_json"]:
                _print_json(router, name, view)
            else:
                _show(router, name, view, prompt=prompt)
        return 0

    return run(work)


def _print_json(router: Router, name: str, view: View) -> None:
    told = {
        "name": name,
        "profile": _plain(router.profiles[name]),
        "tools": [card.key for card in view.visible.cards],
        "prompt": _prompt(router, name, view),
    }
    print_json(scrub_json(told))


def _show(router: Router, name: str, view: View, *, prompt: bool) -> None:
    profile = router.profiles[name]
    click.echo(f"{styled(plain(name), bold=True)}: {plain(profile.description or 'a profile')}")
    click.echo(f"  who    {plain(_who(profile))}")
    click.echo(f"  meant  {plain(_meant(profile))}")
    if profile.persona:
        click.echo(f"  is     {first_sentence(profile.persona)}")
    sees = count(len(view.visible.cards), "tool")
    click.echo(f"  sees   {sees} of {len(router.tools.cards)}")
    if view.visible.cards:
        made = table(None, "tool", "effect", "what it does")
        for card in view.visible.cards:
            made.add_row(plain(card.key), effect_words(card), first_sentence(card.description))
        output().print(made)
    else:
        click.echo("Nothing fits its servers, tools and effects. Are those servers configured?", err=True)
    if prompt:
        click.echo(readable(_prompt(router, name, view)))


def _prompt(router: Router, name: str, view: View) -> str:
    """What a model would read first, with as many of the tools as a request is offered at most."""
    profile, settings = router.profiles[name], router.settings
    offered = view.visible.cards[: profile.max_tools or settings.narrow.max_tools]
    return system_prompt(
        persona=persona_under(profile, None, settings.choose.persona),
        instructions=tool_instructions(offered),
        guidance=profile.guidance or "",
        directives=directives_under(profile, None, settings.choose.directives),
    )


# -- files ------------------------------------------------------------------------------------------


def check_profiles(*, config: Path | None, servers: Path | None, as_json: bool) -> int:
    """Explain what is wrong with profiles: file, line and fix. Exit code 1 when something is."""
    found = find_problems(config=config, servers=servers)
    wrong = [problem for problem in found if not problem.warning and problem.path.startswith("profiles")]
    if as_json:
        print_json([{"where": str(one.origin), "problem": one.message, "fix": one.fix} for one in wrong])
        return 1 if wrong else 0
    for problem in wrong:
        click.echo(styled("error: ", fg="red") + plain(str(problem)))
        click.echo(styled("  fix: ", fg="green") + plain(problem.fix))
    if not wrong:
        click.echo("Nothing is wrong with the profiles.")
    return 1 if wrong else 0


def add_profiles(*, names: tuple[str, ...], config: Path | None, servers: Path | None, as_json: bool) -> int:
    """Write ready profiles into the folder of profiles; without a name, list those there are."""
    ready = examples()
    if not names:
        for name, text in ready.items():
            click.echo(f"{name:12} {text.splitlines()[0].removeprefix('# ')}")
        return 0
    if unknown := [name for name in names if name not in ready]:
        message = f"there is no example {unknown[0]!r}; there are {', '.join(ready)}"
        raise click.UsageError(message)
    folder = _folder(read_settings(Asked(config, servers, as_json)))
    for name in names:
        _write(folder, name, ready[name])
    return 0


def _folder(loaded: Loaded) -> ProfileFiles:
    if loaded.profile_files is None:
        message = "there is no fingerpost.toml that profiles could stand beside"
        raise ConfigError(message, hint="create one (it may be empty), or set profiles_folder")
    return loaded.profile_files


def _write(files: ProfileFiles, name: str, text: str) -> None:
    path, shown = files.folder / f"{name}.toml", f"{files.shown}/{name}.toml"
    if name in files.written:
        message = f"the profile {name} is written at {files.places[name]} already"
        raise ConfigError(message, hint="change it there, or remove it and try again")
    try:
        files.folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        message = f"{shown} is there already"
        raise ConfigError(message, hint="change it, or remove it and try again") from None
    except OSError as error:
        message = f"{shown} cannot be written: {error.strerror}"
        raise ConfigError(message, hint="check the folder and its permissions") from error
    click.echo(f"wrote {plain(shown)}")
    for line in text.splitlines():
        if line.startswith("# Needs "):
            click.echo(f"  {plain(line.removeprefix('# '))}")
