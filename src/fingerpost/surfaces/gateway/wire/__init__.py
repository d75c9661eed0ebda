"""Bytes to requests and back, for both protocol eras: HTTP and stdio. Knows nothing of tools.

Messages   codec (JSON-RPC as bytes), envelope (what a message must look like),
           describing (`initialize`, `server/discover`), answering (a request to its answer)
HTTP       http (headers and faults),
           doors (who comes in), reply (JSON unless something streams),
           modern (2026-07-28: each request stands alone), handshake (before: sessions),
           batches (2025-03-26: several messages in one)
stdio      lines (two file descriptors), blocking (threads that may wait for ever),
           stdio (the same methods for one client)
Held       premises (what all share), sessions, running (what can be ended from outside),
           questions (what we asked a client)
News       audience (who hears), backlog (what a session has not got yet),
           listening (`subscriptions/listen`)
"""
