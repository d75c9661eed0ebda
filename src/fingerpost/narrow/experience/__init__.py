"""Learned use: what worked for similar requests, and what usually comes next."""

from fingerpost.narrow.experience.experience import HistoryScorer, ToolHistory

__all__ = ["HistoryScorer", "ToolHistory"]
