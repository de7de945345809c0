"""What functions for output are given, by real programs, through each framing."""

import os
from pathlib import Path

import pytest
from support.argvs import python, shell
from support.leftovers import nothing_left
from support.taken import Counted, Taken

from stoker.worker.commands.filter import Gap
from stoker.worker.commands.framing import TruncatedFrameError
from stoker.worker.commands.run import run
from stoker.worker.commands.sinks import DISCARD, Output, chunks, lengths, lines, records
from stoker.worker.commands.stream import TAIL_BYTES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60), pytest.mark.anyio]

LENGTHS = r"""
    import sys
    write = sys.stdout.buffer.write
    write(b"\0\0\0\3one\0\0\0\0")
    sys.stdout.flush()
    write(b"\0\0\1\0" + bytes(range(256)))
    write(bytes.fromhex(sys.argv[1]))
"""
"""Frames with their lengths, and what else is asked for, in hexadecimal digits."""

FRAMES = [b"one", b"", bytes(range(256))]


async def test_each_stream_goes_to_its_own_function() -> None:
    out, err = Taken(), Taken()
    async with run(shell("echo out; echo err >&2; echo out"), stdout=lines(out.take), stderr=lines(err.take)):
        pass
    assert (out.all, err.all) == ([b"out", b"out"], [b"err"])


async def test_one_function_may_take_both() -> None:
    both = Taken()
    async with run(shell("echo out; echo err >&2"), stdout=both.take, stderr=both.take):
        pass
    assert sorted(both.text.split()) == [b"err", b"out"]


async def test_lines_come_without_their_newlines() -> None:
    taken = Taken()
    async with run(["printf", r"one\n\ntwo\r\n"], stdout=lines(taken.take)):
        pass
    assert taken.all == [b"one", b"", b"two\r"]


async def test_last_line_needs_no_newline() -> None:
    taken = Taken()
    async with run(["printf", r"one\ntwo"], stdout=lines(taken.take)):
        pass
    assert taken.all == [b"one", b"two"]


async def test_line_that_comes_in_pieces_is_one() -> None:
    taken = Taken()
    async with run(shell("printf o; sleep 0.02; printf n; sleep 0.02; echo e"), stdout=lines(taken.take)):
        pass
    assert taken.all == [b"one"]


async def test_records_are_the_names_that_find_prints(tmp_path: Path) -> None:
    names = {b"plain", b"with\nnewline", b"no text \xff\xfe"}
    for name in names:
        os.mkfifo(os.path.join(os.fsencode(tmp_path), name))
    taken = Taken()
    async with run(["find", tmp_path, "-type", "p", "-printf", r"%f\0"], stdout=records(taken.take)):
        pass
    assert set(taken.frames) == names
    assert len(taken.all) == len(names)


async def test_lengths_are_gone_from_their_frames() -> None:
    taken = Taken()
    async with run(python(LENGTHS, ""), stdout=lengths(taken.take)):
        pass
    assert taken.all == FRAMES


@pytest.mark.parametrize("policy", ["block", "keep", "fail"])
async def test_stream_that_ends_within_a_frame_is_an_error_after_all_whole_ones(policy: str) -> None:
    taken = Taken()
    sink = lengths(taken.take, policy=policy, lost=taken.lost)
    with nothing_left(), pytest.raises(TruncatedFrameError, match=r"bytes missing: 5$"):
        async with run(python(LENGTHS, "00000008 616263"), stdout=sink):
            pass
    assert taken.all == [*FRAMES, Gap(7)]


async def test_bytes_that_are_no_text_survive() -> None:
    every = bytes(range(256))
    for sink_of in (chunks, lines, records):
        taken = Taken()
        async with run(["cat"], stdin=every, stdout=sink_of(taken.take)):
            pass
        separator = {chunks: b"", lines: b"\n", records: b"\0"}[sink_of]
        assert separator.join(taken.frames) == every


async def test_what_is_discarded_is_counted() -> None:
    async with run(["head", "-c", "3000000", "/dev/zero"], stdout=DISCARD) as child:
        pass
    assert child.stdout.total_bytes == 3_000_000
    assert child.stdout.tail == b""


async def test_end_of_what_nobody_takes_is_kept() -> None:
    async with run(shell("head -c 1000000 /dev/zero; echo last; echo err >&2")) as child:
        pass
    assert child.stdout.tail == bytes(TAIL_BYTES - 5) + b"last\n"
    assert child.stdout.total_bytes == 1_000_005
    assert child.stderr.tail == b"err\n"


@pytest.mark.parametrize("output", [None, DISCARD, Counted().take, lines(Counted().take, policy="keep")])
async def test_all_that_is_said_is_heard_whoever_takes_it(output: Output) -> None:
    heard = list[bytes]()
    async with run(shell("echo out; echo err >&2"), stdout=output, stderr=output, said=heard.append):
        pass
    assert sorted(b"".join(heard).split()) == [b"err", b"out"]


@pytest.mark.parametrize("sink_of", [chunks, lines, records, lengths])
async def test_limit_below_a_byte_is_refused_and_nothing_is_left_open(sink_of: type) -> None:
    sink = sink_of(Taken().take, bytes_max=0)
    with nothing_left(), pytest.raises(ValueError, match="bytes_max must be at least 1"):
        async with run(["true"], stderr=sink):
            pass


async def test_policy_is_one_of_three() -> None:
    with pytest.raises(ValueError, match="'drop' is not a valid Policy"):
        lines(Taken().take, policy="drop")
