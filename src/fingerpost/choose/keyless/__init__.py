"""Tool choice and argument filling without a language model. Only certain values are used."""
