"""For those who run it: metrics, and whether it is ready."""

from fingerpost.surfaces.operations.app import OperationsApp, open_operations_app
from fingerpost.surfaces.operations.tracing import TracedApp

__all__ = ["OperationsApp", "TracedApp", "open_operations_app"]
