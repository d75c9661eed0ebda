"""The MCP gateway: one address for any client, with every configured server behind it.

wire/      bytes to requests and back: HTTP in both eras, sessions, stdio
methods/   what each request means: tools, resources, prompts, subscriptions
offers/    what an endpoint lists: route, all, profiles
asking/    questions to the person behind the client: approvals, and those of servers
"""
