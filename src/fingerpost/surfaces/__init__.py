"""Front ends: thin, and unaware of each other. They parse, call the router, render, translate errors."""
