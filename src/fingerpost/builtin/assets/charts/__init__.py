"""Charts: what is shown, and how it is drawn."""
