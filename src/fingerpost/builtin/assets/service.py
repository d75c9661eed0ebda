"""What is wanted, and who makes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, cast, get_args

import anyio.to_thread

from fingerpost.builtin.assets import endpoints
from fingerpost.builtin.assets.charts.drawing import HEIGHT, WIDTH, draw
from fingerpost.builtin.assets.charts.reading import read_chart
from fingerpost.builtin.assets.diagrams.exchange import draw_sequence
from fingerpost.builtin.assets.diagrams.flow import draw_flow
from fingerpost.builtin.assets.diagrams.reading import read_diagram
from fingerpost.builtin.assets.diagrams.records import Flow
from fingerpost.builtin.assets.drawing.letters import can_write
from fingerpost.builtin.assets.drawing.png import SCALE, as_png
from fingerpost.builtin.assets.drawing.shapes import Picture, Words
from fingerpost.builtin.assets.drawing.svg import as_svg
from fingerpost.builtin.assets.models.glb import as_glb
from fingerpost.builtin.assets.models.reading import read_bodies
from fingerpost.builtin.assets.sound.tune import read_tune
from fingerpost.builtin.assets.sound.wave import as_wav
from fingerpost.builtin.assets.speaking import spoken
from fingerpost.builtin.kit import ToolRefused
from fingerpost.call.digest.assets import Asset, asset
from fingerpost.frozen import frozen
from fingerpost.records import Json
from fingerpost.settings import SpecialistsSettings

Kind = Literal["chart", "diagram", "model3d", "audio", "image", "speech"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
FORMATS: Final[Mapping[Kind, tuple[str, ...]]] = {  # the first is the usual one
    "chart": ("svg", "png"),
    "diagram": ("svg", "png"),
    "model3d": ("glb",),
    "audio": ("wav",),
    "image": ("png", "jpg", "webp"),
    "speech": ("wav", "mp3", "flac"),
}
MOST_PIXELS: Final = 24_000_000
USUAL_VOICE: Final = "alloy"
_IN_WORDS: Final[Mapping[Kind, re.Pattern[str]]] = {  # the first that fits counts
    "diagram": re.compile(r"\b(flow ?charts?|diagrams?|mermaid|graph (td|lr|tb))\b|-->|->>", re.IGNORECASE),
    "chart": re.compile(r"\b(charts?|graphs?|plots?|histograms?)\b", re.IGNORECASE),
    "model3d": re.compile(r"\b(3-?d|gltf|glb|three-dimensional)\b", re.IGNORECASE),
    "audio": re.compile(
        r"\b(tones?|melod(y|ies)|chords?|tunes?|beeps?|hz|hertz|scales?|notes?|audio|sounds?)\b",
        re.IGNORECASE,
    ),
    "speech": re.compile(r"\b(say|speak|speech|spoken|aloud|voice|narrat\w+)\b", re.IGNORECASE),
    "image": re.compile(
        r"\b(images?|pictures?|photos?|paint\w*|illustrat\w+|draw\w*|logos?|icons?)\b", re.IGNORECASE
    ),
}


@frozen
class Order:
    """What a caller asks for."""

    kind: Kind | None = None
    prompt: str = ""
    data: Json = None
    form: str | None = None
    title: str = ""
    width: int | None = None
    height: int | None = None
    voice: str | None = None
    seconds: float | None = None


async def made(order: Order, settings: SpecialistsSettings) -> Asset:
    """The asset. Raises `ToolRefused` where it cannot be made, with what to do."""
    kind = order.kind or kind_in(order.prompt)
    if kind is None:
        message = "It is not clear what should be made."
        raise ToolRefused(message, hint=f"Give kind: {', '.join(KINDS)}.")
    form = order.form or FORMATS[kind][0]
    if form not in FORMATS[kind]:
        message = f"There is no {kind} as {form}."
        raise ToolRefused(message, hint=f"Give format: {' or '.join(FORMATS[kind])}.")
    if kind == "image":
        return await _image(order, settings)
    if kind == "speech":
        return await _speech(order, form, settings)
    return await anyio.to_thread.run_sync(_MAKERS[kind], order, form)


def kind_in(prompt: str) -> Kind | None:
    """What the words ask for."""
    return next((kind for kind, words in _IN_WORDS.items() if words.search(prompt[:4000])), None)


# -- made here --------------------------------------------------------------------------------------


def _chart(order: Order, form: str) -> Asset:
    chart = read_chart(order.data, order.prompt, order.title)
    picture = draw(chart, order.width or WIDTH, order.height or HEIGHT)
    return _drawn(picture, form, chart.title or f"{chart.type} chart", chart.about)


def _diagram(order: Order, form: str) -> Asset:
    diagram = read_diagram(order.data, order.prompt, order.title)
    picture = draw_flow(diagram) if isinstance(diagram, Flow) else draw_sequence(diagram)
    return _drawn(picture, form, diagram.title or picture.title, diagram.about)


def _drawn(picture: Picture, form: str, stem: str, about: str) -> Asset:
    if form == "svg":
        return asset(stem, form, as_svg(picture), about)
    if picture.width * picture.height * SCALE**2 > MOST_PIXELS:
        message = f"As png this would have more than {MOST_PIXELS:,} pixels."
        raise ToolRefused(message, hint="Use format svg, or draw a part of it.")
    if not all(can_write(mark.text) for mark in picture.marks if isinstance(mark, Words)):
        message = "Its words have letters that can be written as svg only."
        raise ToolRefused(message, hint="Use format svg.")
    return asset(stem, form, as_png(picture), about)


def _model(order: Order, form: str) -> Asset:
    bodies = read_bodies(order.data, order.prompt)
    title = order.title or " and ".join(body.name for body in bodies[:2])
    about = f"a 3D model of {len(bodies)} {'part' if len(bodies) == 1 else 'parts'}"
    return asset(title, form, as_glb(bodies, title), about)


def _audio(order: Order, form: str) -> Asset:
    tune = read_tune(order.data, order.prompt)
    return asset(order.title or "tune", form, as_wav(tune), tune.about)


_MAKERS: Final[Mapping[Kind, Callable[[Order, str], Asset]]] = {
    "chart": _chart,
    "diagram": _diagram,
    "model3d": _model,
    "audio": _audio,
}


# -- made elsewhere ---------------------------------------------------------------------------------


async def _image(order: Order, settings: SpecialistsSettings) -> Asset:
    if settings.images is None:
        message = "A picture of words alone needs an image service, and none is set."
        hint = (
            "Set builtin.specialists.images to an OpenAI-compatible one. Charts, diagrams, 3D models and "
            "tones are made without: give kind and data."
        )
        raise ToolRefused(message, hint=hint)
    _needs_kind(order)
    prompt = _words(order)
    size = f"{order.width}x{order.height}" if order.width and order.height else None
    form, data = await endpoints.picture(settings.images, prompt, size=size, seconds=order.seconds)
    return asset(order.title or prompt, form, data, "a picture")


async def _speech(order: Order, form: str, settings: SpecialistsSettings) -> Asset:
    text = _words(order)
    if settings.speech is None:
        data = await spoken(text, voice=order.voice, seconds=order.seconds)
        return asset(order.title or text, "wav", data, "speech")
    _needs_kind(order)
    found, data = await endpoints.speech(
        settings.speech, text, voice=order.voice or USUAL_VOICE, form=form, seconds=order.seconds
    )
    return asset(order.title or text, found, data, "speech")


def _needs_kind(order: Order) -> None:
    """What may cost is asked for by name: so do the rules tell it apart from what does not."""
    if order.kind is None:
        kind = cast("Kind", kind_in(order.prompt))
        message = f"This goes to another service, which may cost. Give kind: {kind}."
        raise ToolRefused(message)


def _words(order: Order) -> str:
    text = order.prompt.strip() or (order.data.strip() if isinstance(order.data, str) else "")
    if not text:
        message = "There are no words to make it from."
        raise ToolRefused(message, hint="Give prompt.")
    return text
