"""Results trimmed to a token budget, with a note of what was removed and a handle to the full result."""

from fingerpost.call.digest.results import ResultPage, ResultStore, build_handle
from fingerpost.call.digest.tokens import clip_to_tokens, count_tokens
from fingerpost.call.digest.trim import (
    StructuredFit,
    build_digest,
    build_fitted_digest,
    compute_budget,
    fit_structured,
    needs_summary,
)
from fingerpost.call.digest.untrusted import FENCE_TOKENS, fence_as_data, find_injection_signs
from fingerpost.catalog.tool_names import escape_invisible

__all__ = [
    "FENCE_TOKENS",
    "ResultPage",
    "ResultStore",
    "StructuredFit",
    "build_digest",
    "build_fitted_digest",
    "build_handle",
    "clip_to_tokens",
    "compute_budget",
    "count_tokens",
    "escape_invisible",
    "fence_as_data",
    "find_injection_signs",
    "fit_structured",
    "needs_summary",
]
