"""`stoker decode`: a recorded byte stream as readable lines; see `proto.decode`."""

import sys
from io import BufferedIOBase
from typing import cast

import click

from ..proto import limits
from .output import flush, put_lines


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--payloads", is_flag=True, help="Also the beginning of payloads and results.")
def decode(file: str | None, payloads: bool) -> None:
    """Make FILE, or stdin, readable: one direction of a connection, or both as `socat -x` dumps them.

    Record with `socat -r FILE UNIX-LISTEN:proxy.sock,fork UNIX-CONNECT:broker.sock`.
    """
    if file is None or file == "-":
        _decode(cast(BufferedIOBase, sys.stdin.buffer), payloads)
        return
    with open(file, "rb") as source:
        _decode(source, payloads)


def _decode(source: BufferedIOBase, payloads: bool) -> None:
    from ..proto.decode import Decoder

    decoder = Decoder(preview=payloads)
    # Lines come out as soon as they can be read, so that it can follow a proxy.
    while data := source.read1(limits.READ_BYTES):
        put_lines(decoder.feed(data))
        flush()
    put_lines(decoder.finish())
