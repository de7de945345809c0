"""The command line: one file for each group of verbs, loaded when its verb is used.

Data goes to stdout, talk to stderr, an error is one line that says what to do, and the exit code
tells a script what happened (`config.exits`). What a job contains is escaped before a terminal
sees it (`escape`). Colour: none.
"""
