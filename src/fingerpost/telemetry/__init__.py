"""What is told to those who watch programs: metrics for Prometheus, spans for OpenTelemetry."""
