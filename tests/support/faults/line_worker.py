"""A worker in JSON lines, without a supervisor: what it holds ends with its connection."""

import json
import socket
from typing import Any

ANSWER_S = 20.0
Token = tuple[int, int]


class LineWorker:
    """One connection. `held` are the tokens of the jobs it was given and has not answered for."""

    def __init__(self, path: str, kind: str, slots: int) -> None:
        self.held: dict[Token, str] = {}
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_S)
        self._socket.connect(path)
        self._data = b""
        said = self.ask({"op": "hello", "version": 1, "role": "work", "kinds": [kind], "slots": slots})
        assert said["ok"], said

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request. ConnectionError if the broker has gone."""
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            said = self._line()
            if "ok" in said:
                return said
            self._take(said)

    def look(self) -> None:
        """Take what was pushed meanwhile."""
        self._socket.setblocking(False)
        try:
            while True:
                self._read()
        except BlockingIOError:
            pass
        finally:
            self._socket.settimeout(ANSWER_S)
        while b"\n" in self._data:
            self._take(self._line())

    def close(self) -> None:
        self._socket.close()

    def _take(self, said: dict[str, Any]) -> None:
        if said.get("op") == "job":
            self.held[said["token"][0], said["token"][1]] = said["id"]

    def _line(self) -> dict[str, Any]:
        while b"\n" not in self._data:
            self._read()
        line, _, self._data = self._data.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said

    def _read(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionResetError("the broker has closed")
        self._data += data
