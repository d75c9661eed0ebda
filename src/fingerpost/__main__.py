"""`python -m fingerpost` is the command."""

from fingerpost.surfaces.cli.main import main

main()
