"""How notes become a history: what a kill, a lock and a silence say, and a note that was never finished."""

from pathlib import Path

from support import history as h
from support.faults.notebook import Note, Notebook, merged
from support.faults.testimony import TOGETHER_NS, records_of

MS = 1_000_000
LINE = (30, 20, 10)
"""A worker, its zygote, its supervisor."""


def start(at_ms: int, token: h.Key = (1, 1), line: tuple[int, ...] = LINE, *, alone: bool = True) -> Note:
    return Note(at_ms * MS, "start", ("a", token, line, token[1], alone))


def kinds(notes: list[Note]) -> list[str]:
    return [type(record).__name__ for record in records_of(notes)]


def test_notes_of_several_are_merged_by_their_instants(tmp_path: Path) -> None:
    first, second = Notebook(tmp_path / "first"), Notebook(tmp_path / "second")
    for book, at_ns in ((first, 3), (second, 1), (first, 2)):
        book.note("said", at_ns, [1, [2]], at_ns=at_ns)
    assert merged([first, second]) == [Note(n, "said", (n, (1, (2,)))) for n in (1, 2, 3)]


def test_note_that_a_kill_cut_short_is_left_out_and_spoils_no_other(tmp_path: Path) -> None:
    book = Notebook(tmp_path / "book")
    book.note("whole", at_ns=1)
    with open(book.path, "a") as file:
        file.write('\n[2, "cut sho')
    book.note("later", at_ns=3)
    assert [note.word for note in book.notes()] == ["whole", "later"]


def test_nobody_has_written_into_a_book_that_is_not_there(tmp_path: Path) -> None:
    assert (Notebook(tmp_path / "none").notes(), Notebook(tmp_path / "none").size()) == ([], 0)


def test_handler_that_runs_is_a_delivery_a_start_and_a_stop() -> None:
    assert kinds([start(1), Note(2 * MS, "stop", ((1, 1),))]) == ["Pushed", "Started", "Stopped"]


def test_handler_that_raises_tells_its_broker() -> None:
    records = records_of([start(1), Note(2 * MS, "raise", ((1, 1),))])
    assert records[-1] == h.Reached(2, "30/20", (1, 1), "nack")


def test_attempt_that_gets_the_lock_ends_those_before_it() -> None:
    assert kinds([start(1), start(5, (1, 2))]) == ["Pushed", "Started", "Stopped", "Pushed", "Started"]


def test_attempt_that_does_not_get_the_lock_ends_nothing() -> None:
    assert "Stopped" not in kinds([start(1), start(5, (1, 2), alone=False)])


def test_kill_of_a_zygote_is_a_death_of_its_workers_only() -> None:
    notes = [start(1), start(1, (1, 2), (31, 21, 10)), Note(2 * MS, "kill", (20,))]
    assert records_of(notes)[-1] == h.Died(2, "30/20")


def test_attempt_whose_supervisor_and_zygote_are_killed_together_is_supervised_by_nobody() -> None:
    supervised: list[bool] = []
    for later_ns in (TOGETHER_NS // 2, 2 * TOGETHER_NS):
        kills = [Note(2 * MS, "kill", (10,)), Note(2 * MS + later_ns, "kill", (20,))]
        started = next(each for each in records_of([start(1), *kills]) if isinstance(each, h.Started))
        supervised.append(started.supervised)
    assert supervised == [False, True]


def test_lock_that_something_unsupervised_may_hold_says_nothing() -> None:
    kills = [Note(2 * MS, "kill", (10,)), Note(2 * MS, "kill", (20,))]
    others = (31, 21, 11)
    later = [start(5 + n, (1, 2 + n), others, alone=False) for n in range(2)]
    assert h.Stopped(6, (1, 2)) in records_of([start(1), *kills, *later])


def test_lease_that_lapsed_is_over_for_what_its_worker_runs() -> None:
    lapsed = Note(5 * MS, "lapsed", ("30/20", 100))
    assert records_of([start(1), lapsed])[-1] == h.Over(5, (1, 1), 100)
    assert kinds([start(1), Note(2 * MS, "stop", ((1, 1),)), lapsed])[-1] == "Stopped"


def test_worker_that_is_gone_runs_nothing_any_more() -> None:
    assert kinds([start(1), Note(5 * MS, "gone", ("30/20",))])[-2:] == ["Died", "Stopped"]


def test_raw_worker_that_starts_late_was_delivered_to_before_the_next() -> None:
    late = Note(9 * MS, "raw start", ("a", (1, 1), "raw/7", 1))
    newer = Note(5 * MS, "raw start", ("a", (1, 2), "raw/8", 2))
    pushed = [each.token for each in records_of([newer, late]) if isinstance(each, h.Pushed)]
    assert pushed == [(1, 1), (1, 2)]
