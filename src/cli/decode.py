"""`stoker decode`: a recorded or proxied byte stream as readable lines."""

import sys

import click


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--payloads", is_flag=True, help="Also the beginning of each payload.")
def decode(file: object, payloads: bool) -> None:
    """Make FILE readable: frames and JSON lines as `socat -r` recorded them, or stdin."""
    raise NotImplementedError(sys.argv)
