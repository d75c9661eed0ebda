"""What /v1 adds to asking the same model directly."""
