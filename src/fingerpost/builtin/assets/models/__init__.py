"""Simple bodies as glTF."""
