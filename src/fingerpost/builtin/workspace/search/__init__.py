"""Finding text in files: by what it says literally, by pattern, by meaning."""
