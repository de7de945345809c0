"""Jobs that ran together in a worker that died: nobody is charged before one of them has died alone."""

from typing import Any

import pytest
from support.core_builders import KIND, TICKET, House, WorkerPeer

from stoker.proto import messages as m
from stoker.proto import work as w


def crashed(*ids: str, spared: str = "", **fields: Any) -> tuple[House, int]:
    """A worker of ten slots that ran these jobs and died; `spared` was handed out and not started."""
    house = House()
    supervisor = house.supervisor(workers=["nonce-w1"])
    worker = house.worker("nonce-w1", ticket=TICKET, slots=10)
    for id in (*ids, spared):
        if id:
            house.enqueue(id)
    end(house, supervisor, worker, [house.token(id) for id in ids], **fields)
    house.granted()
    return house, supervisor


def end(house: House, supervisor: int, worker: WorkerPeer, tokens: list[list[int]], **fields: Any) -> None:
    """A worker dies of SIGKILL while it runs these."""
    house.die(worker.connection)
    house.ok(supervisor, w.Exited(worker.nonce, tokens, None, 9, **fields))


def another(house: House, nonce: str = "nonce-w2", slots: int = 10) -> WorkerPeer:
    return house.worker(nonce, ticket=TICKET, slots=slots)


def counters(house: House, id: str) -> tuple[bool, int, int, int]:
    row = house.row(id)
    return row.suspect, row.attempt, row.charged, row.crashes


def test_crash_among_others_charges_nobody_and_is_on_record() -> None:
    house, _ = crashed("a", "b")
    assert [counters(house, id) for id in ("a", "b")] == [(True, 1, 0, 0), (True, 1, 0, 0)]
    (row,) = house.show("a")["history"]
    reason = "worker died (signal 9) while it ran 2 jobs, and nobody knows which did it"
    assert (row["outcome"], row["reason"], row["signal"]) == ("crash", reason, 9)
    assert house.show("a")["reason"] == f"crash: {reason}"


def test_job_that_was_not_started_is_no_suspect() -> None:
    house, _ = crashed("a", "b", spared="c")
    assert counters(house, "c") == (False, 0, 0, 0)
    assert house.outcomes("c") == []


def test_only_job_in_a_worker_of_many_slots_is_charged() -> None:
    house, _ = crashed("a", spared="c")
    assert counters(house, "a") == (False, 1, 1, 1)


def test_kill_that_was_meant_for_one_makes_no_suspects() -> None:
    house, _ = crashed("a", "b", kill_token=[1, 1])
    assert house.outcomes("a") == ["timeout"]
    assert house.outcomes("b") == ["released"]
    assert not house.row("b").suspect


def test_end_of_the_pool_makes_no_suspects() -> None:
    house, _ = crashed("a", "b", shutdown=True)
    assert [house.outcomes(id) for id in ("a", "b")] == [["shutdown"], ["shutdown"]]
    assert not house.row("a").suspect


def test_suspect_runs_alone() -> None:
    house, _ = crashed("a", "b", spared="c")
    another(house)
    assert house.granted() == ["a"]
    another(house, "nonce-w3")
    assert house.granted() == ["b"]
    another(house, "nonce-w4")
    assert house.granted() == ["c"]


def test_worker_is_open_again_when_its_suspect_has_ended() -> None:
    house, _ = crashed("a", "b", spared="c")
    worker = another(house)
    house.ack(worker, "a")
    assert house.granted() == ["a", "b"]
    house.nack(worker, "b")
    assert house.granted() == ["c"]
    house.enqueue("d")
    assert house.granted() == ["d"]


def test_only_a_crash_alone_is_charged_and_it_stays_a_suspect() -> None:
    house, supervisor = crashed("a", "b")
    worker = another(house)
    end(house, supervisor, worker, [house.token("a")])
    assert counters(house, "a") == (True, 2, 1, 1)
    assert counters(house, "b") == (True, 1, 0, 0)


@pytest.mark.parametrize("outcome", ["error", "timeout", "memory"])
def test_finished_attempt_clears_a_suspect(outcome: str) -> None:
    house, _ = crashed("a", "b")
    house.nack(another(house), "a", outcome)
    assert not house.row("a").suspect


def test_released_suspect_stays_one() -> None:
    house, _ = crashed("a", "b")
    worker = another(house)
    house.ok(worker.connection, w.Release(house.token("a"), "released"))
    assert house.row("a").suspect


def test_suspect_is_one_after_a_restart_too() -> None:
    house, _ = crashed("a", "b")
    house.restart()
    house.supervisor(workers=["nonce-w2"])
    another(house)
    assert house.granted() == ["a"]


def test_cancelled_job_is_cancelled_and_not_suspected() -> None:
    house = House()
    supervisor = house.supervisor(workers=["nonce-w1"])
    worker = house.worker("nonce-w1", ticket=TICKET, slots=10)
    for id in ("a", "b"):
        house.enqueue(id)
    house.cancel("a")
    end(house, supervisor, worker, [house.token("a"), house.token("b")])
    assert (house.state("a"), house.state("b")) == ("cancelled", "ready")


# --- a place of its own -----------------------------------------------------------------------------------


def busy() -> tuple[House, WorkerPeer, WorkerPeer]:
    """Two suspects, and two workers of many slots that both run something."""
    house = House()
    supervisor = house.supervisor(workers=["nonce-w1", "nonce-w2", "nonce-w3"])
    doomed = house.worker("nonce-w1", ticket=TICKET, slots=2)
    house.enqueue("a")
    house.enqueue("b")
    first, second = another(house), another(house, "nonce-w3")
    for id in ("c", "d", "e", "f"):
        house.enqueue(id)
    end(house, supervisor, doomed, [house.token("a"), house.token("b")])
    house.granted()
    return house, first, second


def holders(house: House, *ids: str) -> list[str]:
    return [house.show(id)["worker"] for id in ids]


def test_one_worker_clears_for_a_suspect_and_the_other_goes_on() -> None:
    house, first, second = busy()
    assert holders(house, "c", "d", "e", "f") == ["nonce-w2", "nonce-w3", "nonce-w2", "nonce-w3"]
    house.ack(first, "c")
    for id in ("g", "h"):
        house.enqueue(id)
    assert holders(house, "g", "h") == ["nonce-w3", "nonce-w3"]
    house.ack(second, "d")
    assert "runs nothing else" in house.why("a")
    house.granted()
    house.ack(first, "e")
    assert house.granted() == ["a"]


def test_suspect_that_needs_no_place_any_more_opens_the_worker() -> None:
    house, first, _ = busy()
    house.ack(first, "c")
    house.cancel("a")
    house.cancel("b")
    for id in ("g", "h"):
        house.enqueue(id)
    assert sorted(holders(house, "g", "h")) == ["nonce-w2", "nonce-w3"]


def test_more_urgent_job_does_not_wait_behind_a_suspect() -> None:
    house, first, _ = busy()
    house.ok(house.client, m.Pause(None))
    house.enqueue("g", priority=-1)
    house.ok(house.client, m.Resume(None))
    assert house.granted() == ["g"]
    house.ack(first, "c")
    assert house.state("a") == "ready"


def test_suspects_of_a_paused_queue_clear_nobody() -> None:
    house, first, _ = busy()
    house.ok(house.client, m.Pause(house.row("a").queue))
    house.ack(first, "c")
    for id in ("g", "h"):
        house.ok(house.client, m.Enqueue(id, KIND, b"x", queue="other"))
    assert sorted(holders(house, "g", "h")) == ["nonce-w2", "nonce-w3"]


def test_why_names_the_suspect_that_others_wait_for() -> None:
    house, _ = crashed("a", "b")
    another(house)
    house.enqueue("c")
    assert "runs a job alone" in house.why("c")
