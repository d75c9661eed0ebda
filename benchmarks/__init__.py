"""Figures anyone can reproduce: `make bench`. Each is a ratio within one run, printed with its noise."""
