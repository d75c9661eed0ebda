"""The OpenAI-compatible endpoint, at /v1."""
