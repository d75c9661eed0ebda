"""Builds an asset: selects the kind and the module that makes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, get_args

import anyio.to_thread

from fingerpost.builtin.assets.bodies import parse_bodies, render_glb
from fingerpost.builtin.assets.charts import CHART_HEIGHT, CHART_WIDTH, draw_chart, parse_chart
from fingerpost.builtin.assets.diagrams import draw_diagram, parse_diagram
from fingerpost.builtin.assets.endpoints import generate_image, generate_speech, synthesise_speech
from fingerpost.builtin.assets.sound import parse_tune, render_wav
from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.call.digest.results import Asset, build_named_asset
from fingerpost.frozen import frozen
from fingerpost.records import Json
from fingerpost.settings import SpecialistsSettings

AssetKind = Literal["chart", "diagram", "model3d", "audio", "image", "speech"]
ASSET_KINDS: Final[tuple[AssetKind, ...]] = get_args(AssetKind)
FORMATS_BY_KIND: Final[Mapping[AssetKind, tuple[str, ...]]] = {  # the first format is the default
    "chart": ("svg", "png"),
    "diagram": ("svg", "png"),
    "model3d": ("glb",),
    "audio": ("wav",),
    "image": ("png", "jpg", "webp"),
    "speech": ("wav", "mp3", "flac"),
}
DEFAULT_VOICE: Final = "alloy"
_KIND_PATTERNS: Final[Mapping[AssetKind, re.Pattern[str]]] = {  # the first match counts
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
class AssetRequest:
    """A caller's request for an asset."""

    kind: AssetKind | None = None
    prompt: str = ""
    data: Json = None
    file_format: str | None = None
    title: str = ""
    width: int | None = None
    height: int | None = None
    voice: str | None = None
    seconds: float | None = None


async def produce_asset(request: AssetRequest, settings: SpecialistsSettings) -> Asset:
    """Build the asset. Raises `ToolRefused` with a hint if that is not possible."""
    kind = request.kind or find_kind(request.prompt)
    if kind is None:
        hint = f"Give kind: {', '.join(ASSET_KINDS)}."
        raise ToolRefused("It is not clear what should be made.", hint=hint)
    form = request.file_format or FORMATS_BY_KIND[kind][0]
    if form not in FORMATS_BY_KIND[kind]:
        message = f"There is no {kind} as {form}."
        raise ToolRefused(message, hint=f"Give format: {' or '.join(FORMATS_BY_KIND[kind])}.")
    if kind == "image":
        return await _generate_image_asset(request, settings)
    if kind == "speech":
        return await _generate_speech_asset(request, form, settings)
    return await anyio.to_thread.run_sync(_BUILDERS[kind], request, form)


def find_kind(prompt: str) -> AssetKind | None:
    """Return the kind of asset that the text asks for."""
    return next((kind for kind, words in _KIND_PATTERNS.items() if words.search(prompt[:4000])), None)


def _build_chart_asset(request: AssetRequest, file_format: str) -> Asset:
    chart = parse_chart(request.data, request.prompt, request.title)
    data = draw_chart(chart, file_format, request.width or CHART_WIDTH, request.height or CHART_HEIGHT)
    return build_named_asset(chart.title or f"{chart.type} chart", file_format, data, chart.summary)


def _build_diagram_asset(request: AssetRequest, file_format: str) -> Asset:
    diagram = parse_diagram(request.data, request.prompt, request.title)
    data = draw_diagram(diagram, file_format)
    return build_named_asset(diagram.title or diagram.kind, file_format, data, diagram.summary)


def _build_model_asset(request: AssetRequest, file_format: str) -> Asset:
    bodies = parse_bodies(request.data, request.prompt)
    title = request.title or " and ".join(body.name for body in bodies[:2])
    about = f"a 3D model of {len(bodies)} {'part' if len(bodies) == 1 else 'parts'}"
    return build_named_asset(title, file_format, render_glb(bodies, title), about)


def _build_audio_asset(request: AssetRequest, file_format: str) -> Asset:
    tune = parse_tune(request.data, request.prompt)
    return build_named_asset(request.title or "tune", file_format, render_wav(tune), tune.summary)


_BUILDERS: Final[Mapping[AssetKind, Callable[[AssetRequest, str], Asset]]] = {
    "chart": _build_chart_asset,
    "diagram": _build_diagram_asset,
    "model3d": _build_model_asset,
    "audio": _build_audio_asset,
}


async def _generate_image_asset(request: AssetRequest, settings: SpecialistsSettings) -> Asset:
    if settings.images is None:
        message = "An image from a text prompt needs an image service, and none is configured."
        hint = (
            "Set builtin.specialists.images to an OpenAI-compatible one. Charts, diagrams, 3D models and "
            "tones are made without: give kind and data."
        )
        raise ToolRefused(message, hint=hint)
    _check_kind_named(request)
    prompt = _get_prompt(request)
    size = f"{request.width}x{request.height}" if request.width and request.height else None
    form, data = await generate_image(settings.images, prompt, size=size, seconds=request.seconds)
    return build_named_asset(request.title or prompt, form, data, "a picture")


async def _generate_speech_asset(
    request: AssetRequest, file_format: str, settings: SpecialistsSettings
) -> Asset:
    text = _get_prompt(request)
    if settings.speech is None:
        data = await synthesise_speech(text, voice=request.voice, seconds=request.seconds)
        return build_named_asset(request.title or text, "wav", data, "speech")
    _check_kind_named(request)
    found, data = await generate_speech(
        settings.speech,
        text,
        voice=request.voice or DEFAULT_VOICE,
        file_format=file_format,
        seconds=request.seconds,
    )
    return build_named_asset(request.title or text, found, data, "speech")


def _check_kind_named(request: AssetRequest) -> None:
    """Raise if an asset that may cost money is requested without its kind, which policy rules need."""
    if request.kind is None:
        kind = find_kind(request.prompt)
        raise ToolRefused(f"This goes to another service, which may cost. Give kind: {kind}.")


def _get_prompt(request: AssetRequest) -> str:
    text = request.prompt.strip() or (request.data.strip() if isinstance(request.data, str) else "")
    if not text:
        raise ToolRefused("There are no words to make it from.", hint="Give prompt.")
    return text
