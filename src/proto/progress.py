"""How far a running job is, for people: in answers of the broker and on the command line alike."""

FINE_TOTAL = 10_000
"""As a total it means hundredths of a percent: no field holds a float."""


def progress_text(done: int | None, total: int | None, text: str) -> str:
    """`40 %`, `3 of 12 (25 %): pages`, or the text alone."""
    if done is None:
        return text
    if total == FINE_TOTAL:
        how_far = f"{done / 100:g} %"
    elif not total:
        how_far = str(done)
    else:
        percent = f"{done * 100 // total} %"
        how_far = percent if total == 100 else f"{done} of {total} ({percent})"
    return f"{how_far}: {text}" if text else how_far
