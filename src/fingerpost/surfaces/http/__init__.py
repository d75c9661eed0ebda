"""Code shared by all HTTP surfaces: ASGI helpers, authentication, the server. It does not depend on tools."""
