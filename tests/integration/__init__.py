"""One running program, seen through all its surfaces at once."""
