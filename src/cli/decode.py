"""`stoker decode`: a recorded byte stream as readable lines; see `proto.decode`."""

import os
import stat
import sys
from io import BufferedIOBase
from typing import cast

import click

from ..config.exits import Exit
from ..proto import limits
from .output import flush, put_lines


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--payloads", is_flag=True, help="Also the beginning of payloads and results.")
def decode(file: str | None, payloads: bool) -> int:
    """Make FILE, or stdin, readable: one direction of a connection, or both as `socat -x` dumps them.

    Record with `socat -r FILE UNIX-LISTEN:proxy.sock,fork UNIX-CONNECT:broker.sock`. Exit code 1 if from
    some byte on it is nothing that goes through such a connection.
    """
    if file is None or file == "-":
        return _decode(cast(BufferedIOBase, sys.stdin.buffer), payloads)
    if stat.S_ISSOCK(os.stat(file).st_mode):
        raise click.UsageError(f"{file} is a socket and no recording of one.")
    with open(file, "rb") as source:
        return _decode(source, payloads)


def _decode(source: BufferedIOBase, payloads: bool) -> int:
    from ..proto.decode import Decoder

    decoder = Decoder(preview=payloads)
    # Lines come out as soon as they can be read, so that it can follow a proxy.
    while data := source.read1(limits.READ_BYTES):
        put_lines(decoder.feed(data))
        flush()
    put_lines(decoder.finish())
    return Exit.FAILURE if decoder.is_lost else Exit.OK
