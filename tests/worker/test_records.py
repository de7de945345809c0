"""Log records of handlers, each in an interpreter of its own: logging is one for a whole process."""

import subprocess
import sys
import textwrap

import pytest

SETUP = """
import logging, sys
from stoker.worker import records
from stoker.worker.context import CurrentJob, set_current_job
from stoker.worker.output import JobOutput, OutputRules

JOB = CurrentJob("job-7", 2, (1, 7), "send", "mail", {}, 0.0)
log = logging.getLogger("tasks")


def ready(**rules):
    output = JobOutput(OutputRules(**rules))
    output.install()
    records.provide_handlers(output)
    output.begin(JOB.token)
    set_current_job(JOB)
    return output


records.mark()
"""


def ran(code: str) -> list[str]:
    """Lines on stderr of a program that begins as a worker does."""
    command = [sys.executable, "-c", SETUP + textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()


def test_records_carry_the_job_for_formatters_of_the_app() -> None:
    lines = ran("""
        logging.basicConfig(format="%(job_kind)s %(job_id)s %(job_attempt)d %(message)s")
        log.warning("at import")
        ready()
        log.warning("in the job")
    """)
    assert lines == ["  0 at import", "send job-7 2 in the job"]


def test_app_that_sets_such_a_field_itself_has_its_own() -> None:
    assert ran("""
        logging.basicConfig(format="%(job_id)s %(message)s")
        ready()
        log.warning("x", extra={"job_id": "mine"})
    """) == ["mine x"]


def test_record_factory_of_the_app_stays() -> None:
    assert ran("""
        class Record(logging.LogRecord):
            shop = "one"

        logging.setLogRecordFactory(Record)
        handler = logging.StreamHandler()
        handler.emit = lambda record: print(record.shop, record.job_id, file=sys.__stderr__)
        logging.root.addHandler(handler)
        ready()
        log.warning("x")
    """) == ["one job-7"]


def test_app_without_logging_gets_attributed_lines_from_info_on() -> None:
    (line,) = ran("""
        logging.getLogger("library").addHandler(logging.NullHandler())
        ready()
        log.debug("no")
        log.info("sent")
    """)
    assert line.startswith("[send job-7 2] 2")
    assert line.endswith("Z INFO tasks: sent")


def test_job_is_named_once_where_output_is_plain() -> None:
    (line,) = ran("""
        ready(attributed=False)
        log.info("sent")
    """)
    assert line.startswith("[send job-7 2] 2")
    assert line.endswith("Z INFO tasks: sent")
    assert line.count("job-7") == 1


def test_level_that_the_app_chose_stays() -> None:
    assert (
        ran("""
        logging.root.setLevel(logging.ERROR)
        ready()
        log.info("no")
    """)
        == []
    )


@pytest.mark.parametrize("logger", ["logging.root", "log"])
def test_app_that_has_set_up_any_logging_is_left_alone(logger: str) -> None:
    lines = ran(f"""
        handler = logging.StreamHandler()
        {logger}.addHandler(handler)
        ready()
        log.info("no")
        log.warning("once")
        print(len(logging.root.handlers) + len(log.handlers), file=sys.__stderr__)
    """)
    assert lines == ["once", "1"]


@pytest.mark.parametrize("setup", ["", "logging.basicConfig(format='%(message)s')"])
def test_captured_output_has_what_was_logged_once(setup: str) -> None:
    lines = ran(f"""
        {setup}
        output = ready(capture_bytes=1000)
        print("printed")
        log.warning("logged")
        print(repr(output.end(JOB.token)), file=sys.__stderr__)
    """)
    assert lines[-1].count("WARNING tasks: logged") == 1
    assert lines[-1].count("printed") == 1


def test_stream_that_the_app_put_in_place_stays() -> None:
    assert ran("""
        import io
        sys.stdout = mine = io.StringIO()
        ready()
        print("mine")
        print(mine is sys.stdout, mine.getvalue(), end="", file=sys.__stderr__)
    """) == ["True mine"]


def test_start_hooks_of_a_process_for_one_job_find_the_streams_as_others_do() -> None:
    assert ran("""
        output = ready()
        with output.aside():
            logging.getLogger("own").addHandler(logging.StreamHandler())
            print("plain", file=sys.stderr)
        print("attributed", file=sys.stderr)
        logging.getLogger("own").propagate = False
        logging.getLogger("own").warning("its own")
    """) == ["plain", "[send job-7 2] attributed", "its own"]
