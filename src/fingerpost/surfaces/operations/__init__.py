"""For those who run it: metrics, and whether it is ready."""

from fingerpost.surfaces.operations.app import Operations, open_operations
from fingerpost.surfaces.operations.tracing import Traced

__all__ = ["Operations", "Traced", "open_operations"]
