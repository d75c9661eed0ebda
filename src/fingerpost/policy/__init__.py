"""Who may call, see and name what: one rule engine, and what it needs to know of paths and addresses."""
