"""The console in a real browser, against the real program."""
