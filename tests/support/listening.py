"""Whether somebody listens. A socket is there a moment before that: between its bind and its listen."""

import socket


def listens(path: str) -> bool:
    """Whether a connection is taken at that path now."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0
