"""What was made, as a file: a picture, a model, a sound."""

from __future__ import annotations

from typing import Final

from fingerpost.call.digest.assets import FILE, MEDIA_TYPES, Asset, build_file_stem, fetch_asset
from fingerpost.router import Router
from fingerpost.surfaces.api.operation import ApiOperation, ApiProblem, ApiRequest, ApiResponse
from fingerpost.surfaces.api.sight import get_visible_caller
from fingerpost.surfaces.web.asgi import Header

ASSETS_TAG: Final = "assets"
_KNOWN_MEDIA_TYPES: Final = tuple(dict.fromkeys(MEDIA_TYPES.values()))
# On top of what every answer has: opened by itself, an SVG is a page without any rights.
_SANDBOX_HEADER: Final[Header] = (
    b"content-security-policy",
    b"sandbox; default-src 'none'; style-src 'unsafe-inline'",
)


def build_asset_operations(router: Router) -> tuple[ApiOperation, ...]:
    return (
        ApiOperation(
            method="GET",
            path="/api/assets/{handle}",
            name="get_asset",
            summary="Something that was made, as a file. One's own; with the right to watch, anybody's",
            right=None,
            answer=AssetOperations(router).get_asset,
            returns=bytes,
            media=FILE,
            also=_KNOWN_MEDIA_TYPES,
            problems=(404,),
            tag=ASSETS_TAG,
        ),
    )


class AssetOperations:
    """What is kept."""

    def __init__(self, router: Router) -> None:
        self._results = router.calls.results

    async def get_asset(self, request: ApiRequest) -> ApiResponse:
        handle = request.path["handle"]
        found = await fetch_asset(self._results, handle, caller=get_visible_caller(request.principal))
        if found is None:
            detail = "Nothing of yours is kept under this handle. Assets are kept for a while: make it again."
            raise ApiProblem(404, "No such asset", detail)
        return ApiResponse(body=found.data, headers=_build_asset_headers(found), media=_get_media_type(found))


def _get_media_type(found: Asset) -> str:
    """What we know; anything else is bytes, whatever it was said to be."""
    return found.media_type if found.media_type in _KNOWN_MEDIA_TYPES else FILE


def _build_asset_headers(found: Asset) -> tuple[Header, ...]:
    stem, dot, ending = found.name.rpartition(".")
    name = (
        f"{build_file_stem(stem, 80)}.{build_file_stem(ending, 8)}"
        if dot
        else build_file_stem(found.name, 80)
    )
    return ((b"content-disposition", f'attachment; filename="{name}"'.encode()), _SANDBOX_HEADER)
