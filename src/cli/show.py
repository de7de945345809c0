"""`stoker show`: everything about one job, with its payload decoded and the history of its attempts."""

import signal
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..proto.progress import progress_text
from .escape import escape, escape_lines, shorten
from .kept import is_end_only, kept_files
from .moment import instant, span
from .options import json_option, name_argument, open_client, socket_option
from .output import counted, fields, json_text, put, put_lines, table
from .payload import payload_fields, result_text
from .reading import listing, mapping, mappings, text

_REASON_LENGTH = 80

_OUTPUT_LINES = 20
"""Of the last attempt's output, unless all of it is asked for."""

_HISTORY = ("attempt", "outcome", "started", "duration", "ended by", "token", "worker", "code", "reason")
_POLICY_NAMES = {"time_limit_ms": "time limit", "backoff_cap_ms": "backoff cap"}


@click.command()
@name_argument("id")
@click.option("--report", "with_report", is_flag=True, help="Also the traceback of each failed attempt.")
@click.option(
    "--output",
    "with_output",
    is_flag=True,
    help="All that was captured, of every attempt; of the last what is in files.",
)
@socket_option
@json_option
def show(id: str, with_report: bool, with_output: bool, socket: str | None, as_json: bool) -> None:
    """Everything about job ID: state, arguments, policy, and how each attempt ended."""
    client = open_client(socket)
    job = client.show(id, payload=True)
    if as_json:
        put(json_text(job))
        return
    files = kept_files(client, job) if with_output else []
    shown = _without_last_output(job) if files else job
    put_lines(job_lines(shown, with_report=with_report, with_output=with_output))
    for file in files:
        put("")
        put_lines(file.lines())


def _without_last_output(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """The end of what is in files, and comes from there."""
    attempt, history = job.get("attempt"), mappings(job.get("history"))
    rows = [{**row, "output": None} if row.get("attempt") == attempt else row for row in history]
    return {**job, "history": rows}


def job_lines(job: Mapping[str, Any], *, with_report: bool = False, with_output: bool = False) -> list[str]:
    """The job for a person. A key that a broker of another release lacks leaves its line out."""
    lines = fields([*_identity(job), *_times(job), *_policy(job), *_data(job)])
    history = mappings(job.get("history"))
    if history:
        lines += [
            "",
            *table(_HISTORY, [_attempt(row) for row in history], frozenset({"attempt", "duration"})),
        ]
    if with_report:
        lines += _reports(history)
    return lines + _outputs(history, whole=with_output)


def _identity(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    attempt = f"{job.get('attempt', 0)} ({job.get('charged', 0)} charged, {job.get('crashes', 0)} crashes)"
    return [
        *((name, text(job.get(name))) for name in ("id", "number", "kind", "queue")),
        ("priority", f"{text(job.get('priority'))} (lower runs first)" if "priority" in job else ""),
        ("state", text(job.get("state"))),
        ("reason", text(job.get("reason"))),
        ("outcome", text(job.get("outcome"))),
        ("attempt", attempt),
        ("worker", _worker(job.get("worker"))),
        ("code", text(job.get("code"))),
        ("token", _token(job.get("token"))),
        ("progress", _progress(mapping(job.get("progress")))),
    ]


def _progress(said: Mapping[str, Any]) -> str:
    """How far its handler says it is, and when it said so."""
    if not said:
        return ""
    done, total = said.get("done"), said.get("total")
    how_far = progress_text(
        done if isinstance(done, int) else None,
        total if isinstance(total, int) else None,
        str(said.get("text") or ""),
    )
    return f"{how_far} ({span(said.get('ago_ms'))} ago)"


def _times(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("created", instant(job.get("created_at_ms"))),
        ("due in", span(job["due_in_ms"]) if job.get("due_in_ms") else ""),
        ("run at", instant(job.get("run_at_ms"))),
        ("expires in", span(job["expires_in_ms"]) if job.get("expires_in_ms") else ""),
        ("leased", instant(job.get("leased_at_ms"))),
        ("finished", instant(job.get("finished_at_ms"))),
    ]


def _policy(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    parts: list[str] = []
    for name, value in mapping(job.get("policy")).items():
        if value is not None:
            label = _POLICY_NAMES.get(name, name.removesuffix("_ms").replace("_", " "))
            parts.append(f"{label} {span(value) if name.endswith('_ms') else value}")
    texts = [f"{name}={value}" for name, value in mapping(job.get("headers")).items()]
    return [("policy", escape(", ".join(parts))), ("headers", escape(", ".join(texts)))]


def _data(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    payload, result = job.get("payload"), job.get("result")
    pairs: list[tuple[str, str]] = []
    if isinstance(payload, bytes):
        pairs += payload_fields(payload)
    elif "payload_bytes" in job:
        pairs.append(("payload", f"{job['payload_bytes']} bytes"))
    if isinstance(result, bytes):
        pairs.append(("result", result_text(result)))
    return pairs


def _attempt(row: Mapping[str, Any]) -> list[str]:
    return [
        text(row.get("attempt")),
        text(row.get("outcome")),
        instant(row.get("started_at_ms")),
        span(row.get("duration_ms")),
        _ended_by(row),
        _token([row.get("token_epoch"), row.get("token_counter")]),
        _worker(row.get("worker")),
        text(row.get("code")),
        shorten(str(row.get("reason") or ""), _REASON_LENGTH),
    ]


def _worker(value: object) -> str:
    """A worker's identity is boot id, namespace, pid, start and nonce; a person looks for the pid."""
    whole = str(value or "")
    parts = whole.split("/")
    return f"pid {parts[2]}" if len(parts) == 5 else shorten(whole, 40)


def _ended_by(row: Mapping[str, Any]) -> str:
    number, status = row.get("signal"), row.get("status")
    if isinstance(number, int):
        try:
            return signal.Signals(number).name
        except ValueError:
            return f"signal {number}"
    return f"exit {status}" if isinstance(status, int) else ""


def _reports(history: Sequence[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for row in history:
        report = row.get("report")
        if isinstance(report, str) and report:
            lines += ["", f"report of attempt {text(row.get('attempt'))}:"]
            lines += [f"  {line}" for line in escape_lines(report.rstrip("\n"))]
    return lines


def _outputs(history: Sequence[Mapping[str, Any]], *, whole: bool) -> list[str]:
    """What the attempts printed and logged, as far as their pool kept it; else the end of the last."""
    said = [row for row in history if isinstance(row.get("output"), str) and row["output"]]
    lines: list[str] = []
    for row in said if whole else said[-1:]:
        found = escape_lines(row["output"].rstrip("\n"))
        hidden = 0 if whole else max(len(found) - _OUTPUT_LINES, 0)
        more = f" ({counted(hidden, 'line')} before these: --output)" if hidden else ""
        more = more or (" (its end)" if is_end_only(row["output"]) else "")
        lines += ["", f"output of attempt {text(row.get('attempt'))}{more}:"]
        lines += [f"  {line}" for line in found[hidden:]]
    return lines


def _token(value: object) -> str:
    parts = listing(value)
    return (
        ".".join(str(part) for part in parts) if any(isinstance(part, int) and part for part in parts) else ""
    )
