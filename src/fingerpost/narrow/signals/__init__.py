"""Signals of a request: language, entities, intents and mentions of tools."""
