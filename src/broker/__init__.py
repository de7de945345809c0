"""The broker: the only process that opens the journal, and where all queue rules live.

It never forks, never imports user code and never lets a disk stall its loop.
`core/` is pure; everything here feeds it events and carries out its effects.
"""
