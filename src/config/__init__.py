"""What people may set: exit codes, durations and sizes as text, and the settings of each program."""
