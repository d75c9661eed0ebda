"""Narrowing: from a request and the catalog to a shortlist of tools."""
