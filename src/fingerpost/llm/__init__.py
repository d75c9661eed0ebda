"""Language models: requests, replies, adapters for APIs, and the pool of two models."""

from typing import TYPE_CHECKING

from fingerpost.lazy import build_lookup

if TYPE_CHECKING:
    from fingerpost.llm.base import (
        Ask,
        ChatModel,
        ModelReply,
        ModelRequest,
        ModelUsage,
        OnText,
        ResponseSchema,
    )
    from fingerpost.llm.capabilities import Capabilities, probe
    from fingerpost.llm.content import parse_structured
    from fingerpost.llm.openai_chat import OpenAIChat
    from fingerpost.llm.pool import CapabilityMemory, ModelPool, Role

__getattr__, __dir__ = build_lookup(
    __name__,
    {
        "base": "Ask ChatModel ModelReply ModelRequest ModelUsage OnText ResponseSchema",
        "capabilities": "Capabilities probe",
        "content": "parse_structured",
        "openai_chat": "OpenAIChat",
        "pool": "CapabilityMemory ModelPool Role",
    },
)

__all__ = [
    "Ask",
    "Capabilities",
    "CapabilityMemory",
    "ChatModel",
    "ModelPool",
    "ModelReply",
    "ModelRequest",
    "ModelUsage",
    "OnText",
    "OpenAIChat",
    "ResponseSchema",
    "Role",
    "parse_structured",
    "probe",
]
