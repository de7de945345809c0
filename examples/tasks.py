"""The handlers of the README: `stoker up tasks:app --workers 4` in this directory runs them."""

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from stoker import App, Permanent, Retry, current_job

app = App()


@app.job(queue="mail", attempts_max=5, time_limit_s=30)
def send_webhook(url: str, body: dict[str, str]) -> int:
    if not url.startswith(("http://", "https://")):
        raise Permanent(f"not a web address: {url}")  # dead at once: no retry mends it
    headers = {"Idempotency-Key": current_job().id}  # lets the receiver recognise a repeat
    try:
        with urlopen(Request(url, json.dumps(body).encode(), headers)) as answer:
            return int(answer.status)
    except HTTPError as error:
        if error.code == 429:
            raise Retry(after_s=60, reason="told to slow down") from error
        raise  # any other exception: tried again later, with backoff
