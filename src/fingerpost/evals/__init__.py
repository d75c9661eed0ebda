"""Evaluation of the router on labelled requests, from a public set or from an operator's own journal.

`predict` writes the router's predictions, one line per query, without using the labels. `report` compares
these lines with the labels.
"""
