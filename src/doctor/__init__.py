"""What `stoker doctor` looks at: one room for each thing that can be wrong with a host or a directory.

Everything here only looks. Nothing is written, no lock is taken, and a journal that a broker has open
is asked of that broker and never opened beside it.
"""
