"""How the routing encoder and the small fitted models of narrowing were made. Not part of the package."""
