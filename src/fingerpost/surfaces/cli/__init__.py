"""The `fingerpost` command."""
