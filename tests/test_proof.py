"""The long runs: what is counted, what is published, and that a broken promise is never passed over."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.paths import TESTS, python_path
from support.proof.__main__ import main
from support.proof.harness import Harness, Tally
from support.proof.harnesses import all_harnesses
from support.proof.ledger import DamagedLedgerError, Ledger, Piece, commit
from support.proof.run import broken, next_harness, run_pieces, runnable, say_reached
from support.proof.table import BEGIN, END, PAGE, rewrite, table, with_table

said: list[str] = []


def harness(
    name: str = "kills", *, goal: int = 30, found: Sequence[str] = (), count: int = 10, needs: str = ""
) -> Harness:
    """One that does what it is told, and finds this."""

    def run(seed: int, amount: int) -> Tally:
        return Tally({"kills": count}, found)

    return Harness(name, f"what {name} does", "kills", goal, 10, run, lambda: needs)


def named(*harnesses: Harness) -> dict[str, Harness]:
    return {each.name: each for each in harnesses}


def piece(seed: int = 1, *, count: int = 10, found: Sequence[str] = (), commit: str = "abc") -> Piece:
    return Piece("kills", seed, 10, {"kills": count, "jobs": 5}, list(found), 1.5, commit, f"2026-01-0{seed}")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "results")


def test_committed_table_is_what_the_ledger_gives() -> None:
    page = PAGE.read_text(encoding="utf-8")
    again = "a harness or a result has changed: make proof-table"
    assert with_table(page, table(all_harnesses(), Ledger())) == page, again


def test_committed_ledger_has_no_violation() -> None:
    assert broken(all_harnesses(), Ledger()) == []


def test_pieces_are_read_as_they_were_written(ledger: Ledger) -> None:
    for each in (piece(1), piece(2, found=["job a\nis gone"])):
        ledger.add(each)
    assert ledger.pieces("kills") == [piece(1), piece(2, found=["job a\nis gone"])]


def test_torn_line_is_named(ledger: Ledger) -> None:
    ledger.add(piece())
    path = ledger.directory / "kills.jsonl"
    path.write_text(path.read_text() + '{"harness": "ki')
    with pytest.raises(ValueError, match=r"kills\.jsonl:2 is no piece"):
        ledger.pieces("kills")


@pytest.mark.parametrize("damage", [b"\xff", b"[]", b"{}", b"7"])
def test_line_that_is_no_piece_is_named_and_nothing_is_counted(ledger: Ledger, damage: bytes) -> None:
    ledger.directory.mkdir()
    (ledger.directory / "kills.jsonl").write_bytes(damage)
    with pytest.raises(DamagedLedgerError, match=r"kills\.jsonl:1 is no piece: .*; bring it back"):
        ledger.pieces("kills")


@pytest.mark.parametrize(
    "field", [{"seed": "x"}, {"amount": None}, {"counts": [1]}, {"counts": {"kills": "x"}}, {"violations": 3}]
)
def test_field_that_cannot_be_added_up_is_named(ledger: Ledger, field: Any) -> None:
    ledger.add(piece()._replace(**field))
    with pytest.raises(DamagedLedgerError, match=r"kills\.jsonl:1 is no piece"):
        ledger.pieces("kills")


def test_damaged_ledger_is_one_line_of_the_command(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damage: dict[str, Any] = {"harness": "power_images", "seed": "x"}
    ledger.add(piece()._replace(**damage))
    monkeypatch.setattr("support.proof.__main__.Ledger", lambda: ledger)
    assert main(["--list"]) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert "power_images.jsonl:1 is no piece" in last


@pytest.mark.parametrize(
    "arguments",
    [["--amount", "5"], ["power_images", "kill_points", "--amount", "5"], ["power_images", "--amount", "0"]],
)
def test_amount_is_for_one_harness(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "--amount" in capsys.readouterr().err.splitlines()[-1]


def test_row_adds_up_what_was_done(ledger: Ledger) -> None:
    for each in (piece(1), piece(2, commit="def"), piece(3, found=["lost"], commit="def")):
        ledger.add(each)
    assert table(named(harness(goal=20_000)), ledger).splitlines()[-1] == (
        "| what kills does | 30 kills | 20,000 | 1 | 15 jobs | 3 | 2026-01-01 | 2026-01-03 | 2, last `def` |"
    )


def test_row_says_the_most_of_what_was_measured_and_the_sum_of_what_was_counted(ledger: Ledger) -> None:
    for seed, peak in ((1, 90), (2, 70)):
        counts = {"kills": 10, "second deliveries": 1, "peak_mib": peak}
        ledger.add(Piece("kills", seed, 10, counts, [], 1.5, "abc", "2026-01-01"))
    assert "| 2 second deliveries, peak at most 90 mib |" in table(named(harness()), ledger)


def test_harness_without_results_has_a_row_too(ledger: Ledger) -> None:
    assert table(named(harness()), ledger).endswith("| what kills does | 0 kills | 30 |  |  |  |  |  |  |")


def test_results_of_no_harness_are_refused(ledger: Ledger) -> None:
    ledger.add(piece())
    with pytest.raises(LookupError, match="results of kills"):
        table({}, ledger)


def test_table_takes_its_place_and_nothing_else(ledger: Ledger, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert rewrite(named(harness()), ledger, page)
    assert page.read_text() == f"before\n{BEGIN}\n{table(named(harness()), ledger)}\n{END}\nafter\n"
    assert not rewrite(named(harness()), ledger, page)


def test_farthest_from_its_goal_has_the_next_turn(ledger: Ledger) -> None:
    near, far = harness("kills", goal=20), harness("cuts", goal=100)
    ledger.add(piece())
    assert next_harness(named(near, far), ledger) is far
    assert next_harness(named(near), ledger) is near


def test_run_goes_on_where_the_ledger_ends_and_stops_at_the_goal(ledger: Ledger) -> None:
    ledger.add(piece(seed=7))
    assert run_pieces(named(harness()), ledger, said.append)
    assert [each.seed for each in ledger.pieces("kills")] == [7, 8, 9]


def test_harness_that_has_nothing_left_to_do_is_said(ledger: Ledger) -> None:
    ledger.add(piece(1, count=30))
    said.clear()
    say_reached(named(harness(), harness("floods")), ledger, said.append)
    assert said == ["kills: has reached its goal; --amount runs it again"]


def test_run_stops_after_so_many_pieces(ledger: Ledger) -> None:
    assert run_pieces(named(harness()), ledger, said.append, pieces_max=1)
    assert len(ledger.pieces("kills")) == 1


def test_violation_ends_its_harness_and_fails_the_run(ledger: Ledger) -> None:
    lines: list[str] = []
    both = named(harness(found=["job a is gone"]), harness("cuts"))
    assert not run_pieces(both, ledger, lines.append)
    assert len(ledger.pieces("kills")) == 1 and len(ledger.pieces("cuts")) == 3
    assert "  VIOLATION job a is gone" in lines
    assert any("python -m support.proof kills --seed 1 --amount 10" in line for line in lines)


def test_violation_of_an_earlier_run_is_not_forgotten(ledger: Ledger) -> None:
    ledger.add(piece(found=["lost"]))
    assert broken(named(harness()), ledger) == [piece(found=["lost"])]


def test_harness_that_did_nothing_is_a_violation(ledger: Ledger) -> None:
    assert not run_pieces(named(harness(count=0)), ledger, said.append)
    assert "did nothing" in ledger.pieces("kills")[0].violations[0]


def test_harness_that_fails_leaves_no_line(ledger: Ledger) -> None:
    def fail(_: int, __: int) -> Tally:
        raise OSError("no such tool")

    lines: list[str] = []
    assert not run_pieces(named(harness()._replace(run=fail)), ledger, lines.append)
    assert ledger.pieces("kills") == []
    assert any("no such tool" in line for line in lines)


def test_interrupted_piece_leaves_no_line(ledger: Ledger) -> None:
    def interrupt(_: int, __: int) -> Tally:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_pieces(named(harness()._replace(run=interrupt)), ledger, said.append)
    assert ledger.pieces("kills") == []


def test_what_this_host_cannot_run_is_said() -> None:
    lines: list[str] = []
    assert runnable(named(harness(needs="no loop devices"), harness("cuts")), lines.append).keys() == {"cuts"}
    assert lines == ["kills: left out, no loop devices"]


def test_changed_tree_is_marked(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "begin"], check=True)
    clean = commit(tmp_path)
    (tmp_path / "changed").touch()
    assert commit(tmp_path) == f"{clean}+changes" and len(clean) == 10


def test_run_without_a_history_says_so(tmp_path: Path) -> None:
    assert commit(tmp_path) == "unknown"


@pytest.mark.slow
def test_last_line_counts_what_passed_and_what_failed(tmp_path: Path) -> None:
    tests = tmp_path / "test_three.py"
    tests.write_text("def test_a(): pass\ndef test_b(): pass\ndef test_c(): assert False\n")
    program = [sys.executable, "-m", "pytest", "-p", "support.proof.verdict", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*program, str(tests)],
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": python_path(TESTS)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "2 passed, 1 failed", done.stdout + done.stderr
