"""An async fetcher: a hundred pages at once in one process, cancelled in order when they take too long.

stoker up fetcher:app --slots 100                        # in this directory
python fetcher.py http://127.0.0.1:8000/ http://127.0.0.1:8000/fetcher.py
"""

import hashlib
import sys
from urllib.parse import urlsplit

import anyio
import trio

from stoker import App, AsyncJobHandle, Permanent

app = App()


@app.job(queue="pages", time_limit_s=20, attempts_max=3, backoff_s=0.5)
async def fetch(url: str) -> dict[str, str | int]:
    address = urlsplit(url)
    if address.scheme != "http" or address.hostname is None:
        raise Permanent(f"not a plain web address: {url}")
    stream = await trio.open_tcp_stream(address.hostname, address.port or 80)
    async with stream:
        request = f"GET {address.path or '/'} HTTP/1.0\r\nHost: {address.hostname}\r\n\r\n"
        await stream.send_all(request.encode())
        answer = bytearray()
        async for chunk in stream:
            answer += chunk
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    return {"status": int(head.split()[1]), "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}


async def main(urls: list[str]) -> None:
    async def report(url: str) -> None:
        handle: AsyncJobHandle = await fetch.aenqueue(url)
        page = await handle.result(timeout_s=60)
        print(f"{page['status']} {page['bytes']} {page['sha256']} {url}")

    async with anyio.create_task_group() as tasks:
        for url in urls:
            tasks.start_soon(report, url)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
