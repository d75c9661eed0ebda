"""The web console: static files for a browser. It uses the API for everything it shows and does."""

from fingerpost.surfaces.console.app import ConsoleApp, open_console, open_docs

__all__ = ["ConsoleApp", "open_console", "open_docs"]
