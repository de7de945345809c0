"""A client process that kills itself in the middle of a conversation.

It sends enqueues, all or up to some byte, reads some of the answers, and is gone by SIGKILL: between what
it sent and what it would have been told. What it asks and was answered is in its notebook before that.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from stoker.client.request import ConnectionLost
from stoker.client.session import Answered
from stoker.client.spec import JobSpec
from stoker.client.wire import Wire
from stoker.proto.errors import BrokerUnreachableError
from stoker.proto.messages import Enqueue, Enqueued

from .notebook import Notebook

ANSWER_S = 10.0


class Ask(NamedTuple):
    """One enqueue of a conversation. `fresh`: its id was made just now, and was never sent before."""

    id: str
    kind: str
    arguments: tuple[Any, ...]
    fresh: bool

    @property
    def message(self) -> Enqueue:
        """What is sent."""
        return JobSpec(self.kind, self.arguments, id=self.id).message._replace(fresh=self.fresh)

    @property
    def body(self) -> tuple[str, tuple[Any, ...]]:
        """As the oracle compares it."""
        return self.kind, self.arguments


class Conversation(NamedTuple):
    """What is asked, which share of the bytes leaves, and how many answers are read before the end."""

    asks: tuple[Ask, ...]
    sent_share: float
    answers_read: int


def converse(socket: str, notebook: Notebook, conversation: Conversation) -> None:
    """Have it, up to where it ends."""
    for ask in conversation.asks:
        notebook.note("asked", ask.id, ask.body)
    wire = Wire(socket, ANSWER_S)
    frames = [wire.request(ask.message)[1] for ask in conversation.asks]
    data = b"".join(frames)
    sent = data[: round(len(data) * conversation.sent_share)]
    wire.write(sent, ANSWER_S)
    # A frame that is not whole is not answered.
    whole = sum(sum(map(len, frames[: n + 1])) <= len(sent) for n in range(len(frames)))
    for _ in range(min(conversation.answers_read, whole)):
        _note_answer(notebook, wire, conversation)


def _note_answer(notebook: Notebook, wire: Wire, conversation: Conversation) -> None:
    answer = wire.receive(ANSWER_S)
    # Requests of a connection are numbered from 1.
    ask = conversation.asks[answer.request - 1]
    if isinstance(answer, Answered):
        stored = cast(Enqueued, answer.message)
        notebook.note("answered", ask.id, ask.body, ask.fresh, stored.number, "")
    else:
        notebook.note("answered", ask.id, ask.body, ask.fresh, None, answer.error.code)


def main() -> None:
    """Arguments: socket, notebook, the conversation as JSON."""
    socket, path, text = sys.argv[1:]
    asks, sent_share, answers_read = json.loads(text)
    asked = tuple(Ask(id, kind, tuple(arguments), fresh) for id, kind, arguments, fresh in asks)
    # If its broker was killed, then here is where it is killed itself.
    with suppress(BrokerUnreachableError, ConnectionLost):
        converse(socket, Notebook(Path(path)), Conversation(asked, sent_share, answers_read))
    os.kill(os.getpid(), signal.SIGKILL)
