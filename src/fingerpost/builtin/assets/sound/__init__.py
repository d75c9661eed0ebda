"""Tones and tunes as sound."""
