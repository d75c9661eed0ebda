"""The whole pipeline, held together."""

from fingerpost.router.router import Router
from fingerpost.router.wanted import Circumstances, Wanted

__all__ = ["Circumstances", "Router", "Wanted"]
