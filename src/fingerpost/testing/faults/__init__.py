"""Servers that misbehave, one fault each. The numbers are those of the promises `F…` in the tests."""
