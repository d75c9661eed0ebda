"""`use_asset_service`: makes an asset, stores it, and returns a link."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, cast

from fingerpost.builtin.assets.builder import ASSET_KINDS, AssetKind, AssetRequest, produce_asset
from fingerpost.builtin.host import BuiltinHost
from fingerpost.builtin.specialists.agents import SERVER
from fingerpost.builtin.toolkit import BuiltinTool, ResultLink, ToolCaller, ToolRefused, ToolReply
from fingerpost.call.digest import ResultStore
from fingerpost.call.digest.results import MAX_ASSET_BYTES, KeptAsset, keep_asset
from fingerpost.records import Effect, Json, JsonObject
from fingerpost.settings import OwnRule, SpecialistsSettings
from fingerpost.store import Store

ASSET_TOOL: Final = "use_asset_service"
MAX_PROMPT_LENGTH: Final = 20_000
MAX_SPEECH_LENGTH: Final = 4_000

_DESCRIPTION = (
    "Make an asset: a chart or a diagram (SVG or PNG), a simple 3D model (glTF), tones or a melody (WAV), a "
    "picture, or speech. Use this ONLY when the user explicitly asks to generate, create, draw, plot or "
    "compose one. Answers with a link to what was made, not with the thing itself."
)


def build_asset_tool(host: BuiltinHost) -> BuiltinTool:
    settings = host.settings.builtin.specialists

    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        asset = await produce_asset(_build_request(arguments, caller), settings)
        if len(asset.data) > MAX_ASSET_BYTES:
            message = f"It became larger than {MAX_ASSET_BYTES:,} bytes, which is not kept."
            raise ToolRefused(message, hint="Ask for less of it.")
        async with _open_results(host) as results:
            kept = await keep_asset(results, asset, caller=caller.user)
        return ToolReply(kept.summary, links=(_build_link(kept),))

    slowest = max(
        (one.timeout for one in (settings.images, settings.speech) if one is not None), default=60.0
    )
    return BuiltinTool(
        name=ASSET_TOOL,
        title="Make an asset",
        description=_DESCRIPTION,
        run=run,
        effect=Effect.WRITE,
        properties=_PROPERTIES,
        open_world=True,
        knowledge={
            "category": "assets",
            "priority": 30,
            "keywords": (
                "bar chart", "line chart", "pie chart", "chart of", "plot", "diagram of", "flowchart",
                "generate an image", "create an image", "draw a picture", "illustration", "3d model", "gltf",
                "melody", "as speech",
            ),
            "typical_ms": 300,
            "timeout_ms": round((slowest + 10) * 1000),
            "purpose": "Makes charts, diagrams, 3D models, tones, pictures and speech, and keeps them",
            "when": ("The user explicitly asks to generate, create, draw or plot an image, chart or sound",),
            "when_not": (
                "The user asks about an existing picture or file",
                "The user wants the figures in words, or code that draws",
            ),
            "examples": (
                "Draw a bar chart of sales: Q1 12, Q2 18, Q3 9",
                "Create a 3D model of a red cylinder, radius 1, height 3",
                "Generate an image of a lighthouse at night",
                "Make a flowchart: order -> pay -> ship",
            ),
        },
    )  # fmt: skip


def build_asset_rules(settings: SpecialistsSettings) -> tuple[OwnRule, ...]:
    """Return the rules: local assets are allowed; assets from other services may cost money and need
    approval.
    """
    tool = f"{SERVER}/{ASSET_TOOL}"
    costs = (("image", settings.images), ("speech", settings.speech))
    asked = tuple(
        OwnRule(
            verdict="ask",
            tool=tool,
            arguments={"kind": kind},
            reason=f"the {kind} is made by another service, which may cost",
        )
        for kind, service in costs
        if service is not None
    )
    return (*asked, OwnRule(verdict="allow", tool=tool, reason="what is made here is only kept"))


@asynccontextmanager
async def _open_results(host: BuiltinHost) -> AsyncGenerator[ResultStore]:
    """Open the result store: the router's, or that of the settings if this server runs alone."""
    if host.router is not None:
        yield host.router.calls.results
        return
    settings = host.settings
    async with Store.open(settings.store.url, audit=settings.flags.audit) as store:
        yield ResultStore(store.cache, keep_seconds=settings.digest.keep_seconds)


def _build_request(arguments: JsonObject, caller: ToolCaller) -> AssetRequest:
    kind, prompt = arguments.get("kind"), str(arguments.get("prompt") or "")
    if not prompt and not arguments.get("data") and caller.context is not None:
        # A call without a model has no prompt, so the request text is used.
        prompt = caller.context.request[:MAX_PROMPT_LENGTH]
    if kind == "speech" and len(prompt) > MAX_SPEECH_LENGTH:
        message = f"At most {MAX_SPEECH_LENGTH:,} characters are spoken at once."
        raise ToolRefused(message, hint="Give it part by part.")
    return AssetRequest(
        kind=cast("AssetKind | None", kind),
        prompt=prompt,
        data=arguments.get("data"),
        file_format=_get_text(arguments.get("format")),
        title=_get_text(arguments.get("title")) or "",
        width=_get_integer(arguments.get("width")),
        height=_get_integer(arguments.get("height")),
        voice=_get_text(arguments.get("voice")),
        seconds=None if caller.context is None else caller.context.seconds,
    )


def _get_text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def _get_integer(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_PIXELS_SCHEMA: Final[JsonObject] = {"type": "integer", "minimum": 200, "maximum": 2000}
_PROPERTIES: Final[dict[str, JsonObject]] = {
    "prompt": {
        "type": "string",
        "maxLength": MAX_PROMPT_LENGTH,
        "description": "What to make, in words: 'a bar chart of apples 3, pears 5', a flowchart as "
        "'A[Start] --> B[End]', notes as 'C4 E4 G4', or the words to speak",
    },
    "kind": {
        "type": "string",
        "enum": list(ASSET_KINDS),
        "description": "What it is. image and speech may go to another service",
    },
    "data": {
        "type": ["object", "array", "string"],
        "description": "For a chart {labels, values} or {labels, series}, with type bar, line, scatter or "
        "pie; for a diagram {edges: [[from, to, label]]} or {messages}; for a 3D model a list of parts "
        "{shape: box, sphere, cylinder, cone or torus, size or radius, position, color}; for audio "
        "{notes, bpm}",
    },
    "format": {
        "type": "string",
        "enum": ["svg", "png", "glb", "wav", "jpg", "webp", "mp3", "flac"],
        "description": "By default svg for charts and diagrams, glb for 3D models, wav for sound",
    },
    "title": {"type": "string", "maxLength": 200, "description": "Shown in it, and what its file is named"},
    "width": {**_PIXELS_SCHEMA, "description": "Of a chart or picture, in pixels"},
    "height": {**_PIXELS_SCHEMA, "description": "The same upwards"},
    "voice": {"type": "string", "maxLength": 40, "description": "Who speaks, as the service calls them"},
}


def _build_link(kept: KeptAsset) -> ResultLink:
    return ResultLink(
        uri=kept.uri, name=kept.name, media_type=kept.media_type, description=kept.about, size=kept.size
    )
