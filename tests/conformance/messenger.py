"""What the suite starts as "the client": passes its orders on to the test, which plays the client.

The suite starts one process for each scenario. This one imports next to
nothing; gateway and client run in the process of the test.
"""

from __future__ import annotations

import json
import os
import socket
import sys

PATIENCE_S = 60.0


def main(port: str, url: str) -> int:
    order = {
        "url": url,
        "scenario": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"),
    }
    with socket.create_connection(("127.0.0.1", int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(json.dumps(order).encode() + b"\n")
        answer = connection.makefile().read()
    sys.stderr.write(answer)
    return 1 if answer else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
