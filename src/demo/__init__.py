"""`stoker demo`: real jobs on real processes, two of which are killed half-way, and every result checked."""
