"""Results cut to what fits, with an honest note of what was cut and a way to the rest."""

from fingerpost.call.digest.cut import budget_for, digest, needs_summary
from fingerpost.call.digest.fence import FENCE_TOKENS, as_data, shown, suspicious
from fingerpost.call.digest.fitting import fitted
from fingerpost.call.digest.results import Page, Results, handle_of
from fingerpost.call.digest.structured import StructuredFit, fit_structured
from fingerpost.call.digest.tokens import clip, count_tokens

__all__ = [
    "FENCE_TOKENS",
    "Page",
    "Results",
    "StructuredFit",
    "as_data",
    "budget_for",
    "clip",
    "count_tokens",
    "digest",
    "fit_structured",
    "fitted",
    "handle_of",
    "needs_summary",
    "shown",
    "suspicious",
]
