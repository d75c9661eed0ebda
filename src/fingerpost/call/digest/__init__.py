"""Results cut to what fits, with an honest note of what was cut and a way to the rest."""

from fingerpost.call.digest.cut import build_digest, compute_budget, needs_summary
from fingerpost.call.digest.fence import FENCE_TOKENS, escape_invisible, fence_as_data, find_injection_signs
from fingerpost.call.digest.fitting import build_fitted_digest
from fingerpost.call.digest.results import ResultPage, ResultStore, build_handle
from fingerpost.call.digest.structured import StructuredFit, fit_structured
from fingerpost.call.digest.tokens import clip_to_tokens, count_tokens

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
