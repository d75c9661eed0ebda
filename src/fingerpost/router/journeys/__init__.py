"""The ways a packet can go, from the request to the answer. `ways` leads into each of them."""
