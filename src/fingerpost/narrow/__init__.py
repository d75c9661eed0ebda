"""Narrowing: select a shortlist of tools from the catalog for a request."""
