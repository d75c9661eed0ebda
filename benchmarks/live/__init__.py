"""The console's Live under load: a real browser watches while requests arrive."""
