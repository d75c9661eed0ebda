"""What a tool of our own gives back."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import field

from fingerpost.frozen import frozen
from fingerpost.records import CallFault, Json, JsonObject, ParameterFault


@frozen
class ResultLink:
    """Something kept elsewhere: a picture, a model, a sound. Referred to, not pasted."""

    uri: str
    name: str
    media_type: str
    description: str = ""
    size: int | None = None


@frozen(kw_only=False)
class ToolReply:
    """A result: words for a model and a person, and the same as data where a program may want it."""

    text: str
    data: JsonObject | None = field(default=None, kw_only=True)
    links: tuple[ResultLink, ...] = field(default=(), kw_only=True)
    failed: bool = field(default=False, kw_only=True)
    # The id of a call that waits for approval: the caller is then asked about that call.
    awaits: str | None = field(default=None, kw_only=True)


@frozen
class ToolQuestion:
    """What a person has to say before there is a result. The tool is then called once more, with the answer.

    `schema` is a flat JSON schema of an object, as elicitation wants it.
    """

    text: str
    schema: JsonObject
    state: str = ""  # comes back with the answer; whoever holds it can read it


class ToolRefused(Exception):
    """It cannot be done. The words go to the model and the person: what is wrong, and what to do."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        data: dict[str, Json] | None = None,
        error_type: str = "",
        path: str = "",
        parameter: str = "",
        fault: ParameterFault = ParameterFault.BAD_VALUE,
    ) -> None:
        """`error_type` and `path`: what is wrong with which file; `parameter`: the argument to correct."""
        super().__init__(message)
        self.hint = hint
        self.data = data
        self.error_type = error_type
        self.path = path
        self.parameter = parameter
        self.fault = fault

    @property
    def text(self) -> str:
        return f"{self} {self.hint}".strip() if self.hint else str(self)

    @property
    def call_fault(self) -> CallFault:
        """The same as a record."""
        return CallFault(
            message=self.text,
            error_type=self.error_type,
            path=self.path,
            parameter=self.parameter,
            fault=self.fault,
        )


@contextmanager
def attribute_to(parameter: str) -> Generator[None]:
    """Name this argument as the one to correct in every refusal raised inside."""
    try:
        yield
    except ToolRefused as refused:
        refused.parameter = refused.parameter or parameter
        raise
