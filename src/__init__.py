"""stoker: a durable job queue for one Linux host."""
