"""The web console: static files, and who is signed in."""
