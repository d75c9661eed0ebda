"""Requests with the arguments a careful person would fill in, and the tools they are for."""
