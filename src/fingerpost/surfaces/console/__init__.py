"""The web console: static files for a browser. What it shows and does goes through the API."""

from fingerpost.surfaces.console.app import ConsoleApp, open_console

__all__ = ["ConsoleApp", "open_console"]
