"""The client library: what an application, the command line and a worker use to talk to a broker.

`session` is pure (bytes in, bytes out), `wire` one blocking connection, `sync` the `Client`. The
import path stays light on purpose: no trio, no attrs, nothing of the broker.
"""
