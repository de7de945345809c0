"""Exit codes stay what they are: scripts and service units hold them."""

from stoker.config.exits import NEVER_RESTART, Exit


def test_codes_of_daemons_are_those_of_sysexits() -> None:
    daemons = {member.name: int(member) for member in Exit if member >= 64}
    assert daemons == {
        "DATA_REFUSED": 65,
        "UNAVAILABLE": 69,
        "OWNED": 71,
        "CANNOT_CREATE": 73,
        "STORAGE": 74,
        "CONFIG": 78,
    }


def test_storage_error_is_restarted_and_refused_files_are_not() -> None:
    assert Exit.STORAGE not in NEVER_RESTART
    assert {Exit.DATA_REFUSED, Exit.OWNED, Exit.REFUSED} <= NEVER_RESTART
