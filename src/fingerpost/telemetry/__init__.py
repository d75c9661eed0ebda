"""Telemetry: metrics for Prometheus and spans for OpenTelemetry."""
