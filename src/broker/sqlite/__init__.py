"""The journal on SQLite: `journal.py` is the whole of it, the other files are its parts."""

from .journal import SqliteJournal

__all__ = ["SqliteJournal"]
