"""Hebrew requests: word forms and their English translations."""
