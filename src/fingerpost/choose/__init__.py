"""Requests to language models and parsing of their replies. This package calls no tools."""
