"""Code shared by all HTTP surfaces: ASGI helpers, authentication, and the server."""
