"""Measuring the router on labelled requests: a public set's, or an operator's own.

Predicting and judging are apart. `predict` writes what the router says, one
line per query, without looking at a label; `report` reads those lines beside
the labels. So predictions of two versions can be compared long after they were
made, and anybody can judge ours with a program of their own.
"""
