"""The rules of the queue, pure and deterministic.

No trio, apsw, clock, random, os or logging: time and randomness come in as arguments, everything
that shall happen outside goes out as effects and changes. So a seed replays a whole life of the
broker, and what the simulation proves is the code that runs.
"""
