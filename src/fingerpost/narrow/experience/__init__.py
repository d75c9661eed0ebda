"""Learned use: what worked for similar requests, and what usually comes next."""

from fingerpost.narrow.experience.experience import Evidence, Experience

__all__ = ["Evidence", "Experience"]
