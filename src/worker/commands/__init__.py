"""Programs as jobs: what a command writes, how it lives, and how it ends."""
