"""Webhooks to a receiver that fails at random: every one is delivered, and retries follow the policy.

stoker up webhooks:app --workers 4                       # in this directory
python webhooks.py 100                                   # in another terminal: a receiver, and 100 hooks to it
"""

import random
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from stoker import App, JobSpec, Permanent, current_job

app = App()


@app.job(queue="hooks", attempts_max=50, backoff_s=0.05, backoff_cap_s=1, time_limit_s=10)
def deliver(url: str, event: str) -> int:
    job = current_job()
    request = Request(url, event.encode(), {"Idempotency-Key": job.id, "Attempt": str(job.attempt)})
    try:
        with urlopen(request) as answer:
            return int(answer.status)
    except HTTPError as error:
        if error.code < 500:
            raise Permanent(f"refused with {error.code}") from error
        raise  # a failing receiver: again, with backoff


received: dict[str, str] = {}
failures: list[str] = []


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        event = self.rfile.read(int(self.headers["Content-Length"])).decode()
        fails = random.random() < 0.3
        if fails:
            failures.append(event)
        else:
            received[self.headers["Idempotency-Key"]] = event  # a repeat overwrites itself
        self.send_response(503 if fails else 204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    count = int(sys.argv[1])
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        handles = app.client.enqueue_many(JobSpec("deliver", [url, f"event {i}"]) for i in range(count))
        done = sum(handle.wait(60).is_done for handle in handles)
        server.shutdown()
    print(f"sent={count} done={done} received={len(received)} failures={len(failures)}")
