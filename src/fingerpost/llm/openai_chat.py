"""Any model behind an OpenAI-compatible address, through the `openai` package.

The package keeps the wire; the bounds are ours: one deadline over everything,
few repetitions, a limit on the size of a reply, no redirects. It is loaded,
and its client built, when the first question is asked, in a worker thread: both
take a good part of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from fingerpost.errors import ConfigError
from fingerpost.llm.base import ModelReply, ModelRequest, OnText
from fingerpost.llm.options import TOKEN_LIMIT_OPTION
from fingerpost.llm.outlet import TextRelay
from fingerpost.llm.remote import MAX_REPLY_BYTES, RemoteChat
from fingerpost.llm.wire import build_body
from fingerpost.settings import ModelSettings

if TYPE_CHECKING:
    from fingerpost.llm.connection import OpenAIConnection


class OpenAIChat(RemoteChat["OpenAIConnection"]):
    """One model. Close it when done; connections are kept in between.

        OpenAIChat("small-instruct", base_url="http://127.0.0.1:8000/v1")

    Settings can be given whole instead of a name; the other arguments go before them.
    """

    def __init__(
        self,
        model: str | ModelSettings,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        settings = _build_settings(model, base_url=base_url, api_key=api_key, timeout=timeout)
        super().__init__(settings, reply_bytes=reply_bytes)

    async def _complete_on(
        self, connection: OpenAIConnection, request: ModelRequest, on_text: OnText | None
    ) -> ModelReply:
        """The reply. Options the model refuses are left out, from then on.

        Text that was handed over cannot be taken back: from then on there is no other try.
        """
        outlet = None if on_text is None else TextRelay(on_text)
        failed = 0
        while True:
            unwanted = self._get_refused_options(request)
            body = build_body(request, model=self.name, without=unwanted, stream=outlet is not None)
            result = await connection.ask(body, outlet)
            if isinstance(result, ModelReply):
                return result
            if outlet is not None and outlet.used:
                raise result.error from None
            if result.option in body and not _is_callers_option(result.option, request):
                self._note_refused_option(request, result.option)
                continue
            failed += 1
            await self._wait(result, failed)

    def _build(self) -> OpenAIConnection:
        from fingerpost.llm.connection import OpenAIConnection

        return OpenAIConnection(self._settings, reply_bytes=self._reply_bytes)


def _is_callers_option(option: str, request: ModelRequest) -> bool:
    """Whether a caller insists on it: they are told. The limit of tokens has another name to try."""
    return option in request.options and option != TOKEN_LIMIT_OPTION


def _build_settings(
    model: str | ModelSettings, *, base_url: str | None, api_key: str | None, timeout: float | None
) -> ModelSettings:
    given = {"base_url": base_url, "api_key": api_key, "timeout": timeout}
    known = {"model": model} if isinstance(model, str) else model.model_dump()
    wanted = {**known, **{name: value for name, value in given.items() if value is not None}}
    try:
        return ModelSettings.model_validate(wanted)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        message = f"this model cannot be used: {place}: {first['msg']}"
        raise ConfigError(message, hint="See the settings of [models.prime].") from None
