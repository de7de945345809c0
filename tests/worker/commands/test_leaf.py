"""Leaves: control groups by which all of a program is killed at once. They need cgroup v2, and the right to make one."""

import errno
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.leaves import PREFIX, Trunk, a_trunk, group_of, has_leaves
from support.nursery_process import NurseryProcess
from support.pools import is_alive
from support.programs import a_mark, a_program, a_python, a_shell, living
from support.waiting import wait_until

from stoker.worker.commands.leaf import Leaves, trunk_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

needs_leaves = pytest.mark.skipif(
    not has_leaves(), reason="needs cgroup v2 and the right to make a group below that of the tests"
)

WITHOUT_HUNT = """
from stoker.worker.commands import descendants
def kill(reap, without=()):
    reap()
    return set()
descendants.kill = kill
"""
"""Code for a nursery that kills by its leaves and in no other way."""

TREE = """
trap '' TERM
(setsid env -i sh -c '(sleep 600 &) ; (sleep 600 & wait)' $1 $1 &)
sh -c 'kill -STOP $$; sleep 600' $1 &
sleep $1 & exit 4
"""
TREE_COUNT = 6

BOMB = """
import os, sys, time
leader, end_s = os.getpid(), time.monotonic() + 20
for _ in range(7):
    os.fork()
if os.getpid() == leader:
    os._exit(4)
while time.monotonic() < end_s:
    if os.fork():
        os._exit(0)
"""
"""127 that fork and end, and go on in their child: none is there when all have been listed."""

CROWD = 'for each in $(seq 40); do setsid env -i sleep "$1" & done; wait'
CROWD_COUNT = 41


@pytest.fixture
def trunk() -> Iterator[Trunk]:
    with a_trunk() as trunk:
        yield trunk


@pytest.fixture
def nursery(trunk: Trunk) -> Iterator[NurseryProcess]:
    with NurseryProcess(trunk.prefix) as nursery:
        yield nursery


@pytest.fixture
def blind_nursery(trunk: Trunk) -> Iterator[NurseryProcess]:
    with NurseryProcess(trunk.prefix, code=WITHOUT_HUNT) as nursery:
        yield nursery


# --- who is where --------------------------------------------------------------------------------------------


@needs_leaves
def test_each_sentinel_and_its_program_have_a_leaf_of_their_own(
    trunk: Trunk, nursery: NurseryProcess
) -> None:
    lines = [nursery.line() for _ in range(3)]
    pids = [line.started(a_program("sleep", "600")) for line in lines]
    groups = {group_of(pid) for pid in pids}
    assert {leaf.name for leaf in trunk.leaves()} == groups
    assert len(groups) == 3
    assert {group_of(pid) for pid in nursery.sentinels()} == groups
    assert group_of(nursery.pid) == trunk.path.name


@needs_leaves
@pytest.mark.parametrize("limits", [{}, {"cpu_s": 100}], ids=["spawned", "forked"])
def test_sentinel_that_has_killed_is_back_in_its_leaf_for_the_next_program(
    trunk: Trunk, nursery: NurseryProcess, limits: dict[str, int]
) -> None:
    line = nursery.line()
    for _ in range(2):
        assert line.run(a_shell("sleep 600 & exit 5", limits=limits)).left_count == 1
        pid = line.started(a_program("sleep", "600", limits=limits))
        assert [group_of(pid)] == [leaf.name for leaf in trunk.leaves()]
        line.end(0)
        assert line.ended().is_gone
    assert len(nursery.sentinels()) == 1


# --- all of it is killed -------------------------------------------------------------------------------------


@needs_leaves
def test_all_that_is_left_is_killed_and_counted(trunk: Trunk, blind_nursery: NurseryProcess) -> None:
    line, mark = blind_nursery.line(), a_mark()
    ended = line.run(a_shell(TREE, mark))
    assert (ended.status, ended.left_count, ended.is_gone) == (4, TREE_COUNT, True)
    assert living(mark) == set()
    assert line.run(a_shell("exit 5")).status == 5


@needs_leaves
def test_what_forks_quicker_than_it_can_be_listed_is_killed_at_once(blind_nursery: NurseryProcess) -> None:
    line, mark = blind_nursery.line(), a_mark()
    begun_s = time.monotonic()
    ended = line.run(a_python(BOMB, mark))
    assert (ended.status, ended.is_gone, living(mark)) == (4, True, set())
    assert time.monotonic() - begun_s < 5


@needs_leaves
def test_what_has_left_its_leaf_is_killed_as_well(trunk: Trunk, nursery: NurseryProcess) -> None:
    line, mark = nursery.line(), a_mark()
    escape = f"(echo 0 > {trunk.path}/cgroup.procs; exec setsid sleep $1) & sleep 0.1; exit 4"
    ended = line.run(a_shell(escape, mark))
    assert (ended.status, ended.left_count, ended.is_gone) == (4, 1, True)
    assert living(mark) == set()


@needs_leaves
def test_what_a_killed_sentinel_leaves_is_killed_by_its_nursery(
    trunk: Trunk, blind_nursery: NurseryProcess
) -> None:
    line, other, mark = blind_nursery.line(), blind_nursery.line(), a_mark()
    pid = line.started(a_shell(f"{TREE.replace('& exit 4', '')}", mark))
    other_pid = other.started(a_program("sleep", "600"))
    (sentinel,) = [each for each in blind_nursery.sentinels() if group_of(each) == group_of(pid)]
    os.kill(sentinel, signal.SIGKILL)
    with pytest.raises(EOFError):
        line.hear()
    assert living(mark) == set()
    assert is_alive(other_pid)
    trunk.wait_leaves(1)


# --- leaves that are over ------------------------------------------------------------------------------------


@needs_leaves
def test_leaf_is_removed_with_its_sentinel_and_all_that_a_program_made_in_it(
    trunk: Trunk, nursery: NurseryProcess
) -> None:
    line, other = nursery.line(), nursery.line()
    other.run(a_program("true"))
    line.run(
        a_shell(
            'own=$(sed -n s/^0::.*stoker/stoker/p /proc/self/cgroup); mkdir -p "$1/$own/a/b"', str(trunk.path)
        )
    )
    assert len(list(trunk.path.glob("*/a/b"))) == 1
    line.close()
    trunk.wait_leaves(1)
    nursery.wait_sentinels(1)


@needs_leaves
def test_no_leaf_stays_when_the_worker_is_gone(trunk: Trunk) -> None:
    with NurseryProcess(trunk.prefix) as nursery:
        for _ in range(3):
            nursery.line().started(a_shell(TREE.replace("& exit 4", ""), a_mark()))
        assert len(trunk.leaves()) == 3
    assert trunk.leaves() == []


@needs_leaves
def test_what_is_left_when_all_were_killed_at_once_is_ended_when_the_next_nursery_starts(
    trunk: Trunk,
) -> None:
    mark = a_mark()
    with NurseryProcess(trunk.prefix) as nursery:
        pid = nursery.line().started(a_shell(CROWD, mark))
        wait_until(lambda: len(living(mark)) == CROWD_COUNT, "all of its tree")
        for each in (nursery.pid, *nursery.sentinels()):
            os.kill(each, signal.SIGSTOP)
        for each in (*nursery.sentinels(), nursery.pid):
            os.kill(each, signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, nursery.sentinels())), "their end")
    assert is_alive(pid)
    with NurseryProcess(trunk.prefix) as nursery:
        assert nursery.line().run(a_shell("exit 5")).status == 5
        assert living(mark) == set()
        assert len(trunk.leaves()) == 1


@needs_leaves
def test_leaves_of_others_that_live_are_left_alone(trunk: Trunk, nursery: NurseryProcess) -> None:
    idle, busy = nursery.line(), nursery.line()
    idle.run(a_program("true"))
    pid = busy.started(a_program("sleep", "600"))
    before = trunk.leaves()
    strange = trunk.path / f"{PREFIX}not-ours"
    strange.mkdir()
    with NurseryProcess(trunk.prefix) as another:
        another.line().run(a_program("true"))
    assert trunk.leaves() == sorted([*before, strange])
    assert is_alive(pid)
    assert idle.run(a_shell("exit 5")).status == 5


# --- where there are none ------------------------------------------------------------------------------------


@needs_leaves
@pytest.mark.skipif(not shutil.which("unshare") or os.getuid() != 0, reason="needs root and unshare")
def test_where_none_can_be_made_programs_are_killed_all_the_same(trunk: Trunk) -> None:
    top = str(trunk.path.parent)
    read_only = ["unshare", "--mount", "sh", "-c", f'mount --bind -o ro {top} {top} && exec "$@"', "sh"]
    with NurseryProcess([*trunk.prefix, *read_only]) as nursery:
        line, mark = nursery.line(), a_mark()
        pid = line.started(a_program("sleep", "600"))
        assert (group_of(pid), trunk.leaves()) == (trunk.path.name, [])
        line.end(0)
        assert line.ended().is_gone
        assert line.run(a_shell(TREE, mark)).left_count == TREE_COUNT
        assert living(mark) == set()


@needs_leaves
def test_sentinel_that_cannot_enter_its_leaf_does_without(trunk: Trunk) -> None:
    refused = "from stoker.worker.commands import leaf; leaf._move_into = lambda path: False"
    with NurseryProcess(trunk.prefix, code=refused) as nursery:
        line, mark = nursery.line(), a_mark()
        assert line.run(a_shell(TREE, mark)).left_count == TREE_COUNT
        assert (living(mark), trunk.leaves()) == (set(), [])


REFUSE_TO_FORK = f"""
import os
def refuse():
    raise OSError({errno.EAGAIN}, "refused")
os.fork = refuse
"""


@needs_leaves
def test_no_leaf_stays_of_a_sentinel_that_could_not_be_forked(trunk: Trunk) -> None:
    with NurseryProcess(trunk.prefix, code=REFUSE_TO_FORK) as nursery:
        assert nursery.line().failed(a_program("true")).errno == errno.EAGAIN
        assert trunk.leaves() == []


@needs_leaves
def test_sentinel_that_cannot_step_out_does_not_kill_itself(trunk: Trunk) -> None:
    stuck = f"""
from stoker.worker.commands import leaf
real = leaf._move_into
leaf._move_into = lambda path: path != {str(trunk.path)!r} and real(path)
"""
    with NurseryProcess(trunk.prefix, code=stuck) as nursery:
        line, mark = nursery.line(), a_mark()
        assert line.run(a_shell(TREE, mark)).left_count == TREE_COUNT
        assert living(mark) == set()
        assert line.run(a_shell("exit 5")).status == 5


def test_no_trunk_no_leaf(tmp_path: Path) -> None:
    assert Leaves(None).fresh() is None
    assert Leaves(str(tmp_path / "nowhere")).fresh() is None
    # A directory as any other: nothing in it can be killed.
    assert Leaves(str(tmp_path)).fresh() is None
    assert os.listdir(tmp_path) == []


MOUNT = "41 31 0:38 {} {} rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
OTHER = "40 31 0:37 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n42 31 0:39 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"


@pytest.mark.parametrize(
    ("groups", "mounts", "trunk"),
    [
        ("0::/\n", OTHER + MOUNT.format("/", "/sys/fs/cgroup/unified"), "/sys/fs/cgroup/unified"),
        ("0::/a/b c\n", MOUNT.format("/", "/sys/fs/cgroup"), "/sys/fs/cgroup/a/b c"),
        ("3:cpu:/x\n0::/docker/1/a\n", MOUNT.format("/docker/1", "/cg"), "/cg/a"),
        ("0::/docker/1\n", MOUNT.format("/docker/1", "/cg"), "/cg"),
        ("0::/docker/11\n", MOUNT.format("/docker/1", "/cg"), None),
        ("0::/a\n", MOUNT.format("/b", "/b") + MOUNT.format("/a", "/of\\040a"), "/of a"),
        ("0::/../a\n", MOUNT.format("/", "/sys/fs/cgroup"), None),
        ("0::/a\n", OTHER, None),
        ("3:cpu:/x\n", MOUNT.format("/", "/sys/fs/cgroup"), None),
        ("", "", None),
    ],
)
def test_trunk_is_the_own_group_where_it_is_mounted(groups: str, mounts: str, trunk: str | None) -> None:
    assert trunk_of(groups, mounts) == trunk
