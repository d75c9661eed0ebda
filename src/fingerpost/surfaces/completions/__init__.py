"""The OpenAI-compatible endpoint, at /v1.

app        paths, who may come in, and what becomes of faults
reading    a body of /v1/chat/completions as a question; messages, manner and bodies are its parts
models     which model is meant, and the list of them
turns      a question taken to its answer: routed, held for a person, gone on with
chat       the answer as a chat completion, whole or in pieces
responses/ the same question and answer in the shape of /v1/responses
"""

from fingerpost.surfaces.completions.app import OpenAIApp, open_openai_app

__all__ = ["OpenAIApp", "open_openai_app"]
