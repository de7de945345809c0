"""The oracle: did a run keep what stoker promises? A pure function over its history.

It knows nothing of the core. It looks at what peers saw and what really ran, and says of each
promise where it was broken; an empty list means that it could find nothing. It is itself held to
hand-made bad histories, one for each promise (`tests/simulation/test_oracle.py`).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from stoker.proto import limits
from stoker.proto.model import FINAL_STATES

from . import history as h

LEAVING_MS = 100
"""A job may take so long to leave after its time began to count: twice what counts as a disk that is slow."""

FINAL = frozenset(str(state) for state in FINAL_STATES)


def violations(records: Sequence[h.Record]) -> list[str]:
    """Every broken promise, in words."""
    checks = (
        acknowledged_jobs_exist,
        acknowledged_completions_stay,
        tokens_grow,
        stale_tokens_change_nothing,
        counts_add_up,
        limits_hold,
        second_deliveries_have_a_reason,
        what_is_recalled_does_not_begin,
        same_id_is_same_job,
        nothing_runs_twice_at_once,
        nothing_comes_from_nowhere,
        what_is_done_was_delivered,
        records_explain_deliveries,
        dead_letters_are_single,
        backoff_is_kept,
        caps_hold,
        calm_brings_everything_to_its_end,
        nothing_outlives_its_lease,
        nothing_failed_inside,
    )
    return [f"{check.__name__}: {text}" for check in checks for text in check(records)]


def second_deliveries(records: Sequence[h.Record]) -> list[str]:
    """Jobs that were delivered more than once; a run without faults must have none.

    What was sent ahead and taken back before it began was no delivery.
    """
    recalls = [record for record in records if isinstance(record, h.Recalled)]
    again: list[str] = []
    for job_id, pushes in _pushes(records).items():
        kept = [push for _, push in pushes if not any(_takes(recall, push) for recall in recalls)]
        again += [job_id] if len(kept) > 1 else []
    return again


def _takes(recall: h.Recalled, push: h.Pushed) -> bool:
    return recall.worker == push.worker and covers(recall, push.token)


def _pushes(records: Sequence[h.Record]) -> dict[str, list[tuple[int, h.Pushed]]]:
    """Job id to its deliveries, each with its place in the history."""
    pushes: defaultdict[str, list[tuple[int, h.Pushed]]] = defaultdict(list)
    for place, record in enumerate(records):
        if isinstance(record, h.Pushed):
            pushes[record.job_id].append((place, record))
    return pushes


def _job_of(records: Sequence[h.Record]) -> dict[h.Key, str]:
    return {record.token: record.job_id for record in records if isinstance(record, h.Pushed)}


def acknowledged_jobs_exist(records: Sequence[h.Record]) -> Iterator[str]:
    """An enqueue that was answered is there at the end, finished, unless it was deleted since."""
    answers = [record for record in records if isinstance(record, h.Enqueued)]
    stored = {answer.id: answer.number for answer in answers if answer.number is not None}
    dropped = {record.job_id for record in records if isinstance(record, h.Dropped)}
    for ended in (record for record in records if isinstance(record, h.Ended)):
        rows = {row.id: row for row in ended.rows}
        for id, number in stored.items():
            if id not in rows:
                if id not in dropped:
                    yield f"job {id} was acknowledged and is gone"
            elif rows[id].number != number:
                yield f"job {id} was acknowledged as number {number} and is number {rows[id].number}"
        yield from (f"job {row.id} is still {row.state}" for row in ended.rows if row.state not in FINAL)


def acknowledged_completions_stay(records: Sequence[h.Record]) -> Iterator[str]:
    """A job whose ack was confirmed, or of which a client was told, is never delivered again, and is done."""
    job_of = _job_of(records)
    done: set[str] = set()
    for record in records:
        if isinstance(record, h.Told) and record.state == "done":
            done.add(record.job_id)
        if isinstance(record, h.Confirmed) and record.op == "ack" and record.token in job_of:
            done.add(job_of[record.token])
        elif isinstance(record, h.Pushed) and record.job_id in done:
            yield f"job {record.job_id} was delivered again ({record.token}) after its ack was confirmed"
        elif isinstance(record, h.Ended):
            yield from (
                f"job {row.id} is {row.state} although its ack was confirmed"
                for row in record.rows
                if row.id in done and row.state != "done"
            )


def tokens_grow(records: Sequence[h.Record]) -> Iterator[str]:
    """Tokens strictly increase per job, also across restarts, and no two deliveries share one."""
    owners: dict[h.Key, str] = {}
    for job_id, pushes in _pushes(records).items():
        last: h.Key = (0, 0)
        for _, push in pushes:
            if push.token <= last:
                yield f"job {job_id} got token {push.token} after {last}"
            if owners.setdefault(push.token, job_id) != job_id:
                yield f"token {push.token} was given for {owners[push.token]} and for {job_id}"
            last = push.token


def stale_tokens_change_nothing(records: Sequence[h.Record]) -> Iterator[str]:
    """`done` for an op of an old token only if that op had come before the newer delivery left.

    It also has to come from the worker that the token was given to.
    """
    pushes: dict[h.Key, h.Pushed] = {}
    newest: dict[str, h.Key] = {}
    in_time: set[tuple[str, h.Key, str]] = set()
    crashed_ms = -1
    for record in records:
        if isinstance(record, h.Pushed):
            pushes[record.token], newest[record.job_id] = record, record.token
        elif isinstance(record, h.Crashed):
            crashed_ms = record.at_ms
        elif isinstance(record, h.Reached | h.Confirmed) and record.token in pushes:
            push = pushes[record.token]
            if isinstance(record, h.Reached):
                if newest[push.job_id] == record.token:
                    in_time.add((record.worker, record.token, record.op))
            elif push.worker != record.worker:
                yield f"{record.op} of {record.token} was accepted from {record.worker}, not its holder"
            elif not (
                (record.worker, record.token, record.op) in in_time
                or _passes_for_a_repeat(record, push, crashed_ms)
            ):
                yield f"{record.op} of the stale token {record.token} was accepted"


def _passes_for_a_repeat(record: h.Confirmed, push: h.Pushed, crashed_ms: int) -> bool:
    """The journal does not say who ended an attempt that was over its time limit, worker or broker.

    So after a restart a late nack of it is answered as a repeated one is. It changes nothing.
    """
    return record.op == "nack" and _is_over_time(push, record.at_ms) and crashed_ms >= push.at_ms


def _is_over_time(push: h.Pushed, at_ms: int) -> bool:
    return at_ms - push.at_ms >= push.limit_ms - LEAVING_MS


def counts_add_up(records: Sequence[h.Record]) -> Iterator[str]:
    """Each job has one row in one state, and the broker counts what is there."""
    for ended in (record for record in records if isinstance(record, h.Ended)):
        counts: defaultdict[tuple[str, str], int] = defaultdict(int)
        ids: set[str] = set()
        for row in ended.rows:
            counts[row.queue, row.state] += 1
            if row.id in ids:
                yield f"job {row.id} has two rows"
            ids.add(row.id)
        for place in sorted(counts.keys() | ended.counts.keys()):
            said = ended.counts.get(place, 0)
            if said != counts.get(place, 0):
                yield f"{place}: the broker counts {said}, the journal has {counts.get(place, 0)}"


def limits_hold(records: Sequence[h.Record]) -> Iterator[str]:
    """Attempts charged and crashes never exceed their limits."""
    for ended in (record for record in records if isinstance(record, h.Ended)):
        for row in ended.rows:
            if row.charged > row.attempts_max:
                yield f"job {row.id} was charged {row.charged} attempts of {row.attempts_max}"
            if row.crashes > row.crashes_max:
                yield f"job {row.id} crashed {row.crashes} times of {row.crashes_max}"


def second_deliveries_have_a_reason(records: Sequence[h.Record]) -> Iterator[str]:
    """Between two deliveries of a job lies an end of the first: so there is one live lease at most."""
    ends = _Ends(records)
    for job_id, pushes in _pushes(records).items():
        for (place, first), (until, second) in pairwise(pushes):
            if not _is_over_time(first, second.at_ms) and not ends.has_ended(first, place, until):
                yield f"job {job_id}: no reason for {second.token} at {second.at_ms} ms after {first.token}"


class _Ends:
    """Everything that can end an attempt, by worker and by token, each with its place in the history."""

    def __init__(self, records: Sequence[h.Record]) -> None:
        self._gone: defaultdict[str, list[int]] = defaultdict(list)
        self._back: defaultdict[str, list[int]] = defaultdict(list)
        self._given_up: defaultdict[h.Key, list[int]] = defaultdict(list)
        self._recalled: defaultdict[str, list[tuple[int, h.Recalled]]] = defaultdict(list)
        for place, record in enumerate(records):
            if isinstance(record, h.Died | h.Silent):
                self._gone[record.worker].append(place)
            elif isinstance(record, h.Heard):
                self._back[record.worker].append(place)
            elif isinstance(record, h.Recalled):
                self._recalled[record.worker].append((place, record))
            elif isinstance(record, h.Reached) and record.op != "ack":
                self._given_up[record.token].append(place)

    def has_ended(self, push: h.Pushed, place: int, until: int) -> bool:
        """Whether something ended an attempt between its delivery and the next one of its job.

        Also if its worker was out of touch, or dead, when the job was sent to it.
        """
        gone = _last_before(self._gone[push.worker], until)
        if gone >= place or gone > _last_before(self._back[push.worker], place):
            return True
        if any(place < at < until and covers(each, push.token) for at, each in self._recalled[push.worker]):
            return True
        return _last_before(self._given_up[push.token], until) >= place


def covers(recalled: h.Recalled, token: h.Key) -> bool:
    """Whether an attempt was taken back."""
    return token <= recalled.through and (recalled.started is None or token > recalled.started)


def what_is_recalled_does_not_begin(records: Sequence[h.Record]) -> Iterator[str]:
    """Once the broker has read that an attempt is recalled, it does not begin."""
    recalled: defaultdict[str, list[h.Recalled]] = defaultdict(list)
    for record in records:
        if isinstance(record, h.Recalled):
            recalled[record.worker].append(record)
        elif isinstance(record, h.Started) and any(
            covers(each, record.token) for each in recalled[record.worker]
        ):
            yield f"job {record.job_id}: {record.token} began after it was recalled"


def _last_before(places: Sequence[int], until: int) -> int:
    index = bisect_left(places, until)
    return places[index - 1] if index else -1


def same_id_is_same_job(records: Sequence[h.Record]) -> Iterator[str]:
    """Same id and body: the same answer. Another body: a conflict, and never for the right one."""
    first: dict[str, h.Enqueued] = {}
    for record in records:
        if not isinstance(record, h.Enqueued):
            continue
        known = first.get(record.id)
        if record.number is not None:
            known = first.setdefault(record.id, record)
            if record.body != known.body:
                yield f"job {record.id} was accepted with two bodies"
            elif record.number != known.number:
                yield f"job {record.id} was answered as number {known.number} and as {record.number}"
        elif record.code == "conflict" and not record.fresh and known and record.body == known.body:
            yield f"job {record.id} conflicts with itself"


def nothing_runs_twice_at_once(records: Sequence[h.Record]) -> Iterator[str]:
    """No newer attempt of a job starts while one under a supervisor still runs.

    An older one may: a raw worker that was away starts late what it lost meanwhile. Nobody is there
    to stop it, and its token no longer counts.
    """
    running: dict[str, h.Key] = {}
    job_of: dict[h.Key, str] = {}
    for record in records:
        if isinstance(record, h.Started):
            if record.job_id in running and record.token > running[record.job_id]:
                yield f"job {record.job_id} was started ({record.token}) while {running[record.job_id]} ran"
            if record.supervised:
                running[record.job_id] = record.token
                job_of[record.token] = record.job_id
        elif isinstance(record, h.Stopped) and running.get(job_of.get(record.token, "")) == record.token:
            del running[job_of[record.token]]


def nothing_comes_from_nowhere(records: Sequence[h.Record]) -> Iterator[str]:
    """Every job is one that somebody asked for. (Where it is not noted who asks, nobody can tell.)"""
    asked = {record.id for record in records if isinstance(record, h.Asked)}
    for ended in (record for record in records if isinstance(record, h.Ended) and asked):
        yield from (f"job {row.id} was never asked for" for row in ended.rows if row.id not in asked)


def what_is_done_was_delivered(records: Sequence[h.Record]) -> Iterator[str]:
    """No job is done that no worker ever had. (Where it is not noted what is delivered, nobody can tell.)"""
    delivered = {record.job_id for record in records if isinstance(record, h.Pushed)}
    for ended in (record for record in records if isinstance(record, h.Ended) and delivered):
        done = [row.id for row in ended.rows if row.state == "done"]
        yield from (f"job {id} is done, and was never delivered" for id in done if id not in delivered)


def records_explain_deliveries(records: Sequence[h.Record]) -> Iterator[str]:
    """What is on record of a job says why each attempt but the last was not the last, and is true."""
    started = _started_tokens(records)
    died = {record.worker for record in records if isinstance(record, h.Died)}
    worker_of = {record.token: record.worker for record in records if isinstance(record, h.Pushed)}
    for ended in (record for record in records if isinstance(record, h.Ended)):
        for row in ended.rows:
            if row.attempts is not None:
                yield from _unexplained(row, row.attempts, started.get(row.id, []))
                crashed = [each.token for each in row.attempts if each.outcome == "crash"]
                yield from (
                    f"job {row.id}: {token} ended by a crash, it says, but {worker_of[token]} did not die"
                    for token in crashed
                    if worker_of.get(token, "") not in died | {""}
                )


def _started_tokens(records: Sequence[h.Record]) -> dict[str, list[h.Key]]:
    """Job id to the tokens of the attempts that certainly ran, oldest first."""
    tokens: defaultdict[str, set[h.Key]] = defaultdict(set)
    for record in records:
        if isinstance(record, h.Started):
            tokens[record.job_id].add(record.token)
    return {job_id: sorted(found) for job_id, found in tokens.items()}


def _unexplained(row: h.Row, attempts: Sequence[h.OnRecord], started: Sequence[h.Key]) -> Iterator[str]:
    known = {attempt.token: attempt for attempt in attempts}
    if len(attempts) >= limits.OUTCOMES_KEPT:
        started = [token for token in started if token >= attempts[0].token]
    for token in started[:-1]:
        attempt = known.get(token)
        if attempt is None:
            yield f"job {row.id}: {token} ran, was not the last, and is not on record"
        elif attempt.outcome == "ok" or not attempt.reason:
            yield f"job {row.id}: {token} was not the last, but ended with {attempt.outcome} {attempt.reason!r}"
    outcomes = [attempt.outcome for attempt in attempts]
    if "ok" in outcomes[:-1]:
        yield f"job {row.id} has attempts on record after one that succeeded: {outcomes}"
    if (row.state == "done") != (outcomes[-1:] == ["ok"]):
        yield f"job {row.id} is {row.state}, and on record are {outcomes}"


def dead_letters_are_single(records: Sequence[h.Record]) -> Iterator[str]:
    """A job that the log calls dead is so at the end, and is called so once. (Of jobs that nobody kicks.)"""
    buried = Counter(
        record.job_id for record in records if isinstance(record, h.Logged) and record.event == "job_dead"
    )
    for ended in (record for record in records if isinstance(record, h.Ended)):
        states = {row.id: row.state for row in ended.rows}
        for job_id, count in buried.items():
            if count > 1:
                yield f"job {job_id} became dead {count} times"
            if states.get(job_id, "dead") != "dead":
                yield f"job {job_id} is {states[job_id]}, and the log calls it dead"


def backoff_is_kept(records: Sequence[h.Record]) -> Iterator[str]:
    """No retry comes before its backoff less the jitter, nor much after the whole of it."""
    for retry in (record for record in records if isinstance(record, h.Retried)):
        waited_ms = retry.at_ms - retry.failed_ms
        most_ms = min(retry.base_ms * 2 ** (retry.charged - 1), retry.cap_ms)
        least_ms = most_ms - most_ms * limits.BACKOFF_JITTER
        # Instants are whole milliseconds, so each may be one off.
        if waited_ms < least_ms - 1:
            yield f"job {retry.job_id} was retried after {waited_ms} ms, and not before {least_ms:.0f} was due"
        if waited_ms > most_ms + retry.late_ms + 1:
            yield f"job {retry.job_id} was retried after {waited_ms} ms, and {most_ms} was due"


def caps_hold(records: Sequence[h.Record]) -> Iterator[str]:
    """Nothing grows beyond its cap."""
    for sample in (record for record in records if isinstance(record, h.Sampled)):
        if sample.value > sample.most:
            yield f"{sample.what} is {sample.value} at {sample.at_ms} ms; the cap is {sample.most}"


def calm_brings_everything_to_its_end(records: Sequence[h.Record]) -> Iterator[str]:
    """Once the faults are over, everything is finished within the bound."""
    calm: h.Calm | None = None
    for record in records:
        if isinstance(record, h.Calm):
            calm = record
        elif isinstance(record, h.Ended) and calm is not None:
            took_ms = record.at_ms - calm.at_ms
            if took_ms > calm.bound_ms:
                yield f"everything was finished {took_ms} ms after the last fault; the bound is {calm.bound_ms}"


def nothing_outlives_its_lease(records: Sequence[h.Record]) -> Iterator[str]:
    """What ran under a lease is gone when the lease has been over for the grace."""
    started = {record.token for record in records if isinstance(record, h.Started)}
    stopped: dict[h.Key, int] = {}
    for record in records:
        if isinstance(record, h.Stopped):
            stopped.setdefault(record.token, record.at_ms)
    for over in (record for record in records if isinstance(record, h.Over) and record.token in started):
        if over.token not in stopped:
            yield f"{over.token} never ended, and its lease was over at {over.at_ms} ms"
        elif stopped[over.token] > over.at_ms + over.grace_ms:
            late_ms = stopped[over.token] - over.at_ms
            yield f"{over.token} ran on for {late_ms} ms after its lease; the grace is {over.grace_ms}"


INTERNAL = frozenset(
    {"internal_error", "storage_failed", "Traceback", "worker_answer_refused", "tree_not_swept"}
)
"""Events of a log that no kill explains."""


def nothing_failed_inside(records: Sequence[h.Record]) -> Iterator[str]:
    """No log tells of a fault of stoker itself."""
    for line in (record for record in records if isinstance(record, h.Logged)):
        if line.event in INTERNAL:
            yield f"a log has {line.event} {line.job_id}".rstrip()
