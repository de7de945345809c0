"""The demo's progress: one line redrawn on a terminal, a few lines elsewhere."""

import io

from stoker.demo.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_gets_one_line_redrawn() -> None:
    stream = Terminal()
    progress = Progress(4, stream)
    progress.show(0)
    progress.show(2)
    assert stream.getvalue().count("\n") == 0
    assert stream.getvalue().endswith(f"\r[{'#' * 20}{'.' * 20}] 2/4")


def test_same_progress_is_not_drawn_twice() -> None:
    stream = Terminal()
    progress = Progress(4, stream)
    progress.show(1)
    once = stream.getvalue()
    progress.show(1)
    assert stream.getvalue() == once


def test_file_gets_a_line_each_quarter() -> None:
    stream = io.StringIO()
    progress = Progress(100, stream)
    for done in range(101):
        progress.show(done)
    assert stream.getvalue().splitlines() == [f"{done}/100 done" for done in (0, 25, 50, 75, 100)]


def test_words_cover_the_bar_on_a_terminal() -> None:
    stream = Terminal()
    progress = Progress(4, stream)
    progress.show(4)
    progress.say("killed")
    last = stream.getvalue().rpartition("\r")[2]
    assert last == f"{'killed':<46}\n"


def test_nothing_to_do_is_drawn_without_a_division_by_zero() -> None:
    stream = Terminal()
    Progress(0, stream).show(0)
    assert stream.getvalue().endswith("0/0")
