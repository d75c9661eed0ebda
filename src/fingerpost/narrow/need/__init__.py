"""Does a request need a tool at all? Asked before any model is.

    words/      the cues, as word lists in English and Hebrew
    cues        what each cue says, and which way it may speak
    reading     a request turned into cues and features
    rules       the certain cases: greetings, sums, nothing asked, strong patterns
    history     what the conversation already holds, and requests that lean on it
    model       the fitted weights, and the score they give
    judge       `NeedClassifier`, which puts these together

`training/fit_need.py` fits the weights.
"""

from __future__ import annotations

from fingerpost.narrow.need.classifier import NeedClassifier

__all__ = ["NeedClassifier"]
