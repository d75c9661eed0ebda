"""The OpenAI-compatible API at /v1: chat completions, responses and models."""

from fingerpost.surfaces.openai.app import OpenAIApp, open_openai_app

__all__ = ["OpenAIApp", "open_openai_app"]
