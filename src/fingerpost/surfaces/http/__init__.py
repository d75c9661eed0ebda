"""What all surfaces that speak HTTP share: ASGI helpers, authentication, the server. Knows nothing of
tools.
"""
