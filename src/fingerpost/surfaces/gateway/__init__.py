"""The MCP gateway: one endpoint for any client, with every configured server behind it."""
