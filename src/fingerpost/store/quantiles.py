"""Quantiles of a stream in little space, by counting values in log-spaced buckets.

Bucket `i` holds the values in (g^(i-1), g^i], and every one of them is reported
as the same number in between, chosen so that the relative error is at most
`ERROR`. Counts add, so many processes can feed one sketch, and adding is all
the database has to do. (The idea is DDSketch, Masson et al. 2019.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping

ERROR = 0.02
_GROWTH = (1 + ERROR) / (1 - ERROR)
_LOG_GROWTH = math.log(_GROWTH)

# Outside these bounds a duration or a size is not one; inside, there are at most 864 buckets.
SMALLEST, LARGEST = 1e-3, 1e12
ZERO_BUCKET = -1_000_000


def bucket_of(value: float) -> int:
    """The bucket that counts `value`. Less than a thousandth counts as nothing."""
    if not value >= SMALLEST:  # also true for NaN
        return ZERO_BUCKET
    return math.ceil(math.log(min(value, LARGEST)) / _LOG_GROWTH)


def value_of(bucket: int) -> float:
    """The number that stands for every value of the bucket."""
    return 0.0 if bucket == ZERO_BUCKET else 2 * _GROWTH**bucket / (_GROWTH + 1)


def quantile(counts: Mapping[int, int], share: float) -> float:
    """The value below or at which `share` of all counted values lie; 0 when none was counted."""
    rank = math.ceil(share * sum(counts.values()))
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= max(rank, 1):
            return value_of(bucket)
    return 0.0
