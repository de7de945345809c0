"""Every limit and default of stoker on one page: the number, its unit, and why that number.

Names end in the unit (`_ms`, `_s`, `_bytes`) and then the qualifier (`_max`, `_default`), so that
relatives line up. A value out of range is refused by name; nothing is ever quietly clamped.
"""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

# --- the wire -------------------------------------------------------------------------------------

PROTOCOL_VERSION = 1

FRAME_BYTES_MAX = 16 * MIB - 1
"""Below 2**24, so the first byte of a binary connection is always 0 and text mode can be told apart."""

CONTROL_FRAME_BYTES_MAX = 64 * KIB
"""For ops that carry no payload: a hostile peer cannot make the parser build much from so little."""

PAYLOAD_BYTES_MAX = 1 * MIB
"""What one enqueue may carry. Larger inputs belong in files, with their path in the payload."""

RESULT_BYTES_MAX = 64 * KIB
REASON_BYTES_MAX = 2 * KIB
REPORT_BYTES_MAX = 8 * KIB
"""Traceback of one attempt. Cut in the middle with a marker, so that both its ends survive."""

OUTPUT_BYTES_MAX = 64 * KIB
"""What is kept of an attempt's output, if a pool was told to: its end, because there it went wrong."""

KEEP_OUTPUT_BYTES_MIN = KIB
"""Of a file of what a program says. A figure below is most likely one without its unit."""

KEEP_OUTPUT_BYTES_MAX = 64 * GIB
"""Of the same: more than anybody reads, and far from what a file system takes. What all files together take is
bounded by the low-water mark of the disk, not by this."""

OUTPUT_CHUNK_BYTES_MAX = 64 * KIB
"""Of what a running program says, on its way to followers: one of each stream at a time, answered when it was taken."""

FOLLOWED_BYTES_MAX = 256 * KIB
"""Held of one followed job, for followers that are slower than others. Who is further behind has a gap."""

FOLLOWED_ANSWER_BYTES = 128 * KIB
"""Of it in one answer: a chunk of each stream."""

FOLLOWED_MAX = 100
"""Jobs that are followed at once: 25 MiB at most."""

FOLLOWED_KEPT_MS = 60 * SECOND_MS
"""How long a finished job is held for followers that have not come back for its last output."""

PROGRESS_TEXT_BYTES_MAX = 256
"""What a handler says of how far it is: one line in `stoker show`."""

ENQUEUE_FRAME_BYTES_MAX = PAYLOAD_BYTES_MAX + 64 * KIB
RESULT_FRAME_BYTES_MAX = RESULT_BYTES_MAX + OUTPUT_BYTES_MAX + 32 * KIB
"""`ack` and `nack`: the largest result and the longest output fit together."""

LISTING_FRAME_BYTES_MAX = 256 * KIB
"""`hello` and `heartbeat`: full lists of the longest names and nonces fit."""

POOL_FRAME_BYTES_MAX = 2 * MIB
"""The full list of kinds with long names and policies, and of workers, fits twice."""

NAME_BYTES_MAX = 128
"""Job ids, queues and kinds: `[A-Za-z0-9._:-]`, so that they are safe in any file, log and terminal."""

HEADERS_MAX = 32
HEADER_BYTES_MAX = 1 * KIB

INTEGER_MAX = 2**53
"""Integers on the wire stay exact in every language's JSON."""

PRIORITY_MIN = -1_000_000
PRIORITY_MAX = 1_000_000
"""Lower runs first; 0 is the default."""

DURATION_MS_MAX = 10 * 365 * DAY_MS
"""Ten years: longer than any sane delay, far from every overflow."""

LIST_ITEMS_MAX = 1024
"""Longest list in one message (kinds of a pool, held tokens, workers of a heartbeat). A decoder makes
room for what a list announces, and lists nest a thousand deep: this bounds that to 8 MiB."""

FIELD_ITEMS_MAX = 64
"""The same for ops that have no such list: their fields, and the headers of a job."""

ANSWER_ITEMS_MAX = 65_536
"""For answers, which come from the broker and list what it holds."""

CONTAINERS_MAX = 4096
"""Lists and maps in one request: an empty one is 1 byte there and 70 in memory. Full lists fit twice."""

ITEMS_MAX = 16_384
"""What all lists and maps of one request may hold together: numbers and short texts are one to three bytes
there and up to 60 in memory. The largest list of kinds with all their policies has 12,000."""

JOBS_PAGE_MAX = 1000
"""Rows in one answer to `jobs`; a caller pages on with `after`."""

HELD_MAX = 1024

POOL_QUEUES_MAX = 64
"""Queues that a pool names. All of them are looked at for each job it gets."""

POOL_PROGRAMS_MAX = 1024
"""Programs that a pool names because its jobs may run no others."""

WEIGHT_MAX = 1000
"""Of one of them: far more than anybody can tell apart."""

SLOTS_MAX = 1024

PREFETCH_MAX = 8
"""Jobs that a worker may get ahead of the one that it runs. With four of them most of what a job costs by itself
is shared; what is beyond is only taken back more often."""

TEXT_FACTOR = 2
"""A JSON line may be so many times as long as a frame of its op: base64 takes a third more than bytes,
and escapes and field names take the rest."""

COMMAND_LINE_BYTES_MAX = 224
"""Any other line. The same figure as beanstalkd's."""

TICKET_BYTES = 16
"""A supervisor's ticket: 128 random bits cannot be guessed."""

HANDSHAKE_MS = 5 * SECOND_MS
"""A connection that says nothing for so long is closed."""

FRAME_MS_MAX = 30 * SECOND_MS
"""A frame or line that has begun must be whole within this time, however slowly bytes trickle."""

OUTGOING_BYTES_PAUSE = 256 * KIB
"""A peer with so much to read has nothing more taken up, and is not read from, until it has caught up."""

OUTGOING_BYTES_MAX = 32 * MIB
"""A peer with so much unread is disconnected: it has stopped reading altogether."""

UNREAD_MS_MAX = 30 * SECOND_MS
"""A client that has taken nothing for so long of what waits for it is disconnected: it has most likely been
stopped, and when it goes on it asks again."""

UNREAD_BYTES_MAX = 64 * MIB
"""What all peers together may leave unread. Above it those are disconnected that have taken nothing for
longest: one alone is held to a quarter of a megabyte and one answer, but there may be thousands."""

READ_BYTES = 64 * KIB

SOCKET_PATH_BYTES_MAX = 107
"""`sun_path` is 108 bytes and the kernel wants a terminating zero."""

# --- leases and liveness ----------------------------------------------------------------------------

LEASE_MS_DEFAULT = 60 * SECOND_MS
LEASE_MS_MIN = 100
LEASE_MS_MAX = DAY_MS
HEARTBEAT_MS_MAX = 15 * SECOND_MS
HEARTBEAT_SHARE_OF_LEASE = 4
"""A heartbeat every quarter of the shortest lease: three may be lost before the lease is."""

RECONNECT_GRACE_MS = 10 * SECOND_MS
SUPERVISOR_GRACE_MS = 30 * SECOND_MS
GRACE_MS_MIN = SECOND_MS
"""The least that those two may be: a worker looks for a broker once a second, and must be able to come back."""


TIME_LIMIT_MS_DEFAULT = HOUR_MS
"""Finite by default: a hang always ends."""

KILL_GRACE_MS = 5 * SECOND_MS
KILL_GRACE_MS_MIN = 100
"""A handler must be able to answer the signal: without any grace each cancel would be a SIGKILL."""

SUPERVISOR_DEATH_MS = 2 * SECOND_MS
"""Workers end within this time after their supervisor died."""

SUPERVISOR_DEATH_TERM_MS = SUPERVISOR_DEATH_MS // 2
"""Of that the part in which their jobs may end by themselves. Whoever dies in it did not die of his zygote."""

ASYNC_WORKERS_DEFAULT = 1
ASYNC_SLOTS_DEFAULT = 100
"""Coroutine handlers mostly wait, so one loop on one processor serves many at once."""

DRAIN_MS_DEFAULT = 30 * SECOND_MS
"""How long jobs may go on after a TERM. Service managers commonly wait longer than that."""

# --- retries ------------------------------------------------------------------------------------------

ATTEMPTS_MAX_DEFAULT = 5
CRASHES_MAX_DEFAULT = 3
ATTEMPTS_MAX_LIMIT = 100_000
RELEASES_IN_A_ROW_MAX = 10
"""So many uncharged ends without one finished attempt make a job dead: something is wrong with it."""

BACKOFF_MS_DEFAULT = 5 * SECOND_MS
BACKOFF_CAP_MS_DEFAULT = HOUR_MS
BACKOFF_JITTER = 0.10

# --- handlers -----------------------------------------------------------------------------------------

MEMORY_LIMIT_BYTES_MIN = 4 * MIB
"""Python itself takes memory a megabyte at a time: below this a handler may fail without taking any."""
RECYCLE_BYTES_MIN = 32 * MIB
"""Memory of its own that a worker may have before it is replaced: a fresh one, with what its start hooks
open, has less."""
RECYCLE_AGE_MS_MIN = 1 * SECOND_MS
"""With less a pool would do little else."""

# --- queues, retention, memory --------------------------------------------------------------------------

QUEUE_DEFAULT = "default"
QUEUE_JOBS_MAX_DEFAULT = 1_000_000
QUEUE_BYTES_MAX_MIN = KIB
"""A queue of which no job has room is none; a figure below is most likely one without its unit."""

QUEUE_BYTES_MAX_DEFAULT = 1 * GIB
QUEUE_DEAD_MAX_DEFAULT = 100_000

LIVE_JOBS_MAX_DEFAULT = 2_000_000
"""Of all queues together: each takes about a kilobyte of the broker's memory."""

QUEUES_MAX = 4096
"""That hold or held a job, or are paused. A report looks at each of them, which takes 20 ms with so many.
`default` and those that are configured come on top, and what jobs that are there already are moved to."""

KINDS_MAX = 4096
"""Whose policies are known, four full lists. Each is kept and journalled until room is needed for others, and
looked at for each heartbeat of a supervisor."""

KINDS_LOOKED_MS = MINUTE_MS
"""How often those are looked for that nobody needs any more: all live jobs are looked at for that. Not sooner
after a start either, so that pools can come back first."""

POOLS_MAX = 64
"""Supervisors that are known at once: far more than one machine has use for. Each may come with a full list of
kinds, which takes half a megabyte."""

DONE_KEPT_MS_DEFAULT = DAY_MS
DONE_KEPT_MAX_DEFAULT = 100_000
DEAD_KEPT_MS_DEFAULT = 30 * DAY_MS
DEAD_KEPT_MAX_DEFAULT = 100_000

ID_KEPT_CALLER_MS = DAY_MS
ID_KEPT_LIBRARY_MS = 15 * MINUTE_MS
"""How long an id and its body hash outlive the row: the window in which a repeat is recognised."""

IDS_KEPT_MAX = 10_000_000

FRESH_MS = 5 * SECOND_MS
"""An id said to be made just now is believed for so long: within this time the broker remembers every
id it took in, and later ones are looked up on disk, where a second job of that id would do damage."""

PARKED_BYTES_MAX = 64 * MIB
"""Payloads of all enqueues that wait for room. One more is refused with `queue_full`."""

WAITS_MAX = 100_000
"""Open `wait` and parked `enqueue` requests of all connections, of some hundred bytes each."""

DUE_JOBS_STEP = 500
"""Jobs that become ready or expire in one step, so that 50,000 due at once hold nobody up."""

CONFIG_BYTES_MAX = 1 * MIB
"""A settings file is a page of text. What is larger is some other file, named by mistake."""

STATUS_ROWS_MAX = 1000
"""Queues, workers, pools and kinds that `status` names one by one; `left_out` counts the rest."""

STATUS_ROW_ITEMS_MAX = 50
"""Kinds of one of those pools, and jobs of one of those workers. With the longest ids for as many jobs of each
worker a `status` takes half of a frame."""

WARNINGS_MAX = 100

FIGURES_MAX = 50
"""Queues that get a line of their own in the log once a minute; the rest are summed up in one."""

FULL_SAID_MS = MINUTE_MS
"""A queue that stays full is said to be so this often, however many enqueues it turns away."""

OUTCOMES_KEPT = 20
"""Attempts of one job whose record is kept; the oldest go first."""

PAYLOAD_CACHE_BYTES = 64 * MIB
"""Payloads of waiting jobs held in memory; the rest are read from the journal when their turn comes."""

PRUNE_ROWS = 500
"""Rows one step of retention removes, so that pruning never holds up a commit for long."""

BATCH_BYTES_MAX = 4 * MIB
"""Payload bytes one open batch gathers before readers are asked to wait."""

# --- descriptors --------------------------------------------------------------------------------------------

DESCRIPTORS_MIN = 16
"""Open files that any command needs, to load what it is made of while it talks to a broker."""

BROKER_DESCRIPTORS_MIN = 64
"""Below it no broker starts: 32 are for itself, and two for each connection."""

POOL_DESCRIPTORS = 32
WORKER_DESCRIPTORS = 4
"""Of a pool's supervisor for each worker: two, and as many for the one that takes its place at a reload."""

# --- storage -----------------------------------------------------------------------------------------------

BALLAST_BYTES = 16 * MIB
"""A file that is deleted when the disk is full, so that acks still fit. More than the log can ever hold
(twice WAL_BYTES_CHECKPOINT and one batch), because folding it into the journal takes so much."""

BALLAST_BYTES_MIN = MIB
"""So much at least, where a small disk has no room for all of it above the low-water mark: thousands of acks."""

LOW_WATER_BYTES_MIN = 4 * MIB
"""The log alone grows to so much before it is folded in. A figure below is most likely one without its unit."""

LOW_WATER_BYTES = 32 * MIB
"""Room for a whole log and its folding in. Free space below which enqueues are refused with `storage_full` while everything else goes on."""

JOURNAL_BYTES_CHECKED = 256 * MIB
"""Of a journal up to this size the structure is looked at whole at each start, which takes a second at most. Of a
larger one only after a storage error, and by `stoker doctor`."""

WAL_BYTES_CHECKPOINT = 4 * MIB
"""The log's size from which it is folded into the journal, when there is a moment for it, and from twice
of which at once. Small, because a full disk must still have room to fold it in."""

WALL_RECHECK_MS = 2 * SECOND_MS
"""The longest the broker sleeps: a step of the wall clock is noticed within this time."""

ENDED_RECOVERED = 10_000
"""Ended attempts read back at start: more than one batch can hold unanswered acks of."""
