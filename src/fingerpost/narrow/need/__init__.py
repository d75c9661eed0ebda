"""The decision whether a request needs a tool at all, made before any model is asked.

`features` reads cues from word lists in `words/`, `rules` decides the clear cases, and `classifier` combines
these with fitted weights. `training/fit_need.py` fits the weights.
"""
