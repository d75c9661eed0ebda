"""Servers with one fault each. The numbers are those of the requirements `F…` in the tests."""
