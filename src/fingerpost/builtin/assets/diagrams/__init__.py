"""Diagrams: boxes and arrows from a few words."""
