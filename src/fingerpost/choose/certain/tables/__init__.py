"""Written knowledge that needs no model: places and their time zones, languages, currencies, words."""
