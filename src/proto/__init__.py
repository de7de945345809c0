"""The wire and its words: what every process of stoker, and every client of it, agrees on.

Nothing here does I/O, reads a clock or imports trio. A client loads only what it needs, so the
modules are small and none is imported by this one. `docs/protocol.md` is the specification;
`ops.py` is the same as a table.
"""
