"""A nightly job from crontab, exactly one a day, however often and from wherever it is asked for.

    stoker up nightly:app                                    # in this directory
    0 3 * * *  stoker enqueue nightly_report --id "report-$(date +\\%F)"        # crontab

The id is the day: a second line for the same day (a cron daemon started twice, a person in doubt) is the
same job, and is answered as the first was. What the report writes is recorded in the application's own
database in the same transaction, so a crash at any point does not write it twice either.
"""

import os
import sqlite3
from datetime import date

from stoker import App, current_job

app = App()
DATABASE = os.environ.get("REPORTS", "reports.sqlite")


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(DATABASE)
    connection.execute("CREATE TABLE IF NOT EXISTS reports (day TEXT, job TEXT)")
    return connection


@app.job(queue="nightly", attempts_max=3, backoff_s=60, time_limit_s=3600, expires_s=12 * 3600)
def nightly_report() -> str:
    job = current_job()
    day = job.id.removeprefix("report-") or date.today().isoformat()
    connection = connect()
    try:
        with connection:  # one transaction: the report and the note that it was written
            if job.once(connection):
                connection.execute("INSERT INTO reports VALUES (?, ?)", (day, job.id))
    finally:
        connection.close()
    return day
