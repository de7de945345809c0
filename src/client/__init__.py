"""The client library: what an application, the command line and a worker use to talk to a broker.

Pure, and shared by both clients: `session` (bytes in, bytes out), `request` (what is done after a loss),
`pipeline` (many enqueues). `wire`, `caller` and `sync` are the blocking `Client`; `aio_line`,
`aio_caller` and `aio` the `AsyncClient`. The import path of the former stays light on purpose: no
trio, no attrs, no anyio, nothing of the broker.
"""
