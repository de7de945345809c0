"""Thumbnails of all images in a directory, by ImageMagick: jobs that are programs need no handler.

    stoker up thumbnails:app --commands            # in this directory
    python thumbnails.py PICTURES THUMBNAILS

ImageMagick ends with 1 for an image that it can make nothing of. No second attempt mends that, so such a job is dead
at once, with what ImageMagick had to say about it, and this ends with 1. Run again, it makes what is not there.
"""

import shutil
import sys
from pathlib import Path

from stoker import App, Client, JobSpec

app = App()
SUFFIXES = {".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}
WIDTH = 40


def wanted(pictures: Path, thumbnails: Path) -> dict[Path, Path]:
    """Each image that has no thumbnail yet, and where that is to be."""
    images = (path for path in sorted(pictures.iterdir()) if path.suffix.lower() in SUFFIXES)
    targets = {path: thumbnails / f"{path.name}.png" for path in images}
    return {image: target for image, target in targets.items() if not target.exists()}


def job(image: Path, target: Path) -> JobSpec:
    # ImageMagick puts a number in place of %d. Of several frames the first is taken.
    source, made = (str(path).replace("%", "%%") for path in (image, target))
    argv = [shutil.which("convert") or "convert", f"{source}[0]", "-thumbnail", "128x128>", made]
    return JobSpec("command", [argv], {"permanent": [1]}, time_limit_s=60)


def show_progress(done: int, count: int) -> None:
    bar = "#" * (WIDTH * done // count)
    print(
        f"\r[{bar:<{WIDTH}}] {done}/{count}", end="\n" if done == count else "", file=sys.stderr, flush=True
    )


def main(pictures: Path, thumbnails: Path) -> int:
    thumbnails.mkdir(exist_ok=True)
    images = wanted(pictures.resolve(), thumbnails.resolve())
    broken: list[str] = []
    with Client() as client:
        jobs = client.enqueue_many(job(*each) for each in images.items())
        for done, (image, handle) in enumerate(zip(images, jobs, strict=True), start=1):
            if handle.wait().state != "done":
                said = client.show(handle.id)["history"][-1]["output"].partition("\n")[0]
                broken.append(f"{image.name}: {said}")
            show_progress(done, len(images))
    print(*broken, f"thumbnails={len(images) - len(broken)} broken={len(broken)}", sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    usable = len(sys.argv) == 3 and Path(sys.argv[1]).is_dir()
    sys.exit(main(*map(Path, sys.argv[1:])) if usable else "usage: thumbnails.py PICTURES THUMBNAILS")
