"""What was made, as a file: a picture, a model, a sound."""

from __future__ import annotations

from typing import Final

from fingerpost.call.digest.assets import FILE, MEDIA, Asset, fetch, file_stem
from fingerpost.router import Router
from fingerpost.surfaces.api.operation import ApiRequest, Operation, Problem, Reply
from fingerpost.surfaces.api.sight import only_of
from fingerpost.surfaces.web.asgi import Header

TAG: Final = "assets"
_KNOWN: Final = tuple(dict.fromkeys(MEDIA.values()))
# On top of what every answer has: opened by itself, an SVG is a page without any rights.
_SANDBOX: Final[Header] = (
    b"content-security-policy",
    b"sandbox; default-src 'none'; style-src 'unsafe-inline'",
)


def operations(router: Router) -> tuple[Operation, ...]:
    return (
        Operation(
            method="GET",
            path="/api/assets/{handle}",
            name="get_asset",
            summary="Something that was made, as a file. One's own; with the right to watch, anybody's",
            right=None,
            answer=Assets(router).get,
            returns=bytes,
            media=FILE,
            also=_KNOWN,
            problems=(404,),
            tag=TAG,
        ),
    )


class Assets:
    """What is kept."""

    def __init__(self, router: Router) -> None:
        self._results = router.calls.results

    async def get(self, request: ApiRequest) -> Reply:
        handle = request.path["handle"]
        found = await fetch(self._results, handle, caller=only_of(request.principal))
        if found is None:
            detail = "Nothing of yours is kept under this handle. Assets are kept for a while: make it again."
            raise Problem(404, "No such asset", detail)
        return Reply(body=found.data, headers=_headers(found), media=_media(found))


def _media(found: Asset) -> str:
    """What we know; anything else is bytes, whatever it was said to be."""
    return found.media_type if found.media_type in _KNOWN else FILE


def _headers(found: Asset) -> tuple[Header, ...]:
    stem, dot, ending = found.name.rpartition(".")
    name = f"{file_stem(stem, 80)}.{file_stem(ending, 8)}" if dot else file_stem(found.name, 80)
    return ((b"content-disposition", f'attachment; filename="{name}"'.encode()), _SANDBOX)
