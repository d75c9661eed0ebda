"""Results trimmed to a token budget, with a note of what was removed and a handle to the full result."""

from fingerpost.call.digest.blocks import FENCE_TOKENS as FENCE_TOKENS
from fingerpost.call.digest.blocks import fence_as_data as fence_as_data
from fingerpost.call.digest.blocks import find_injection_signs as find_injection_signs
from fingerpost.call.digest.results import ResultPage as ResultPage
from fingerpost.call.digest.results import ResultStore as ResultStore
from fingerpost.call.digest.results import build_handle as build_handle
from fingerpost.call.digest.tokens import clip_to_tokens as clip_to_tokens
from fingerpost.call.digest.tokens import count_tokens as count_tokens
from fingerpost.call.digest.trim import StructuredFit as StructuredFit
from fingerpost.call.digest.trim import build_digest as build_digest
from fingerpost.call.digest.trim import build_fitted_digest as build_fitted_digest
from fingerpost.call.digest.trim import compute_budget as compute_budget
from fingerpost.call.digest.trim import fit_structured as fit_structured
from fingerpost.call.digest.trim import needs_summary as needs_summary
from fingerpost.catalog.tool_names import escape_invisible as escape_invisible
