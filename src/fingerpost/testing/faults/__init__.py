"""Servers that misbehave, one fault each. The numbers are those of the fault catalogue in `docs/`."""
