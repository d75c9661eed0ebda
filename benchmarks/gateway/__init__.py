"""What the gateway costs, beside a direct connection and beside others of its kind."""
