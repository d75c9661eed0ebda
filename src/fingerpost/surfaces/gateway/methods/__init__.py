"""What the gateway answers: every method of the protocol, whoever carries it here."""

from fingerpost.surfaces.gateway.methods.gateway import GatewayMethods, open_methods

__all__ = ["GatewayMethods", "open_methods"]
