"""The openai client's side of a conversation."""

from __future__ import annotations

from typing import Any

from openai import OpenAI


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def whole(client: OpenAI, messages: list[Any], *, model: str = "fingerpost", **more: Any) -> dict[str, Any]:
    """One completion as it came, extension and all."""
    create: Any = client.chat.completions.create
    return create(model=model, messages=messages, **more).model_dump()


def read_stream(client: OpenAI, messages: list[Any], *, model: str = "fingerpost") -> str:
    """The text of a streamed one."""
    stream = client.chat.completions.create(model=model, messages=messages, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def text_of(completion: dict[str, Any]) -> str:
    return completion["choices"][0]["message"]["content"]
