"""Language models: requests, replies, adapters for APIs, and the pool of two models."""

from fingerpost.llm.base import Ask, ChatModel, ModelReply, ModelRequest, ModelUsage, OnText, ResponseSchema
from fingerpost.llm.capabilities import Capabilities, probe
from fingerpost.llm.content import parse_structured
from fingerpost.llm.openai_chat import OpenAIChat
from fingerpost.llm.pool import CapabilityMemory, ModelPool, Role

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
