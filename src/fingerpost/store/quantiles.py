"""Quantiles of a stream in little space, by counting values in log-spaced buckets.

Bucket `i` holds the values in (g^(i-1), g^i], and every one of them is reported
as the same number in between, chosen so that the relative error is at most
`RELATIVE_ERROR`. Counts add, so many processes can feed one sketch, and adding is all
the database has to do. (The idea is DDSketch, Masson et al. 2019.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping

RELATIVE_ERROR = 0.02
_GROWTH = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GROWTH = math.log(_GROWTH)

# Outside these bounds a duration or a size is not one; inside, there are at most 864 buckets.
SMALLEST, LARGEST = 1e-3, 1e12
ZERO_BUCKET = -1_000_000


def get_bucket(value: float) -> int:
    """The bucket that counts `value`. Less than a thousandth counts as nothing."""
    if not value >= SMALLEST:  # also true for NaN
        return ZERO_BUCKET
    return math.ceil(math.log(min(value, LARGEST)) / _LOG_GROWTH)


def get_bucket_value(bucket: int) -> float:
    """The number that stands for every value of the bucket."""
    return 0.0 if bucket == ZERO_BUCKET else 2 * _GROWTH**bucket / (_GROWTH + 1)


def compute_quantile(counts: Mapping[int, int], share: float) -> float:
    """The value below or at which `share` of all counted values lie; 0 when none was counted."""
    rank = math.ceil(share * sum(counts.values()))
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= max(rank, 1):
            return get_bucket_value(bucket)
    return 0.0
