"""What can be read off a request before any tool is looked at: language, intents, names, things."""

from fingerpost.narrow.signals.reader import SignalReader

__all__ = ["SignalReader"]
