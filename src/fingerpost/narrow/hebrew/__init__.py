"""Hebrew requests: word forms and their English meanings."""
