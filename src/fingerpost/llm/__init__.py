"""Language models: what is asked of one, what comes back, and the adapter that speaks to it."""

from fingerpost.llm.base import ChatModel, ModelReply, ModelRequest, ModelUsage, ResponseSchema
from fingerpost.llm.openai_chat import OpenAIChat
from fingerpost.llm.structured import structured

__all__ = [
    "ChatModel",
    "ModelReply",
    "ModelRequest",
    "ModelUsage",
    "OpenAIChat",
    "ResponseSchema",
    "structured",
]
