"""The tables of settings in `docs/configuration.md`, made from `src/config/table.py`.

Run it to print them: `PYTHONPATH=tests .venv/bin/python -m support.settings_table`.
"""

from collections.abc import Sequence

from stoker.config.table import ACCESS, BROKER, LOG, POOL, QUEUE_SETTINGS, QUEUES, Setting, keys_of

TABLES: dict[str, Sequence[Setting]] = {
    BROKER: [*keys_of(BROKER).values()],
    QUEUES: QUEUE_SETTINGS,
    ACCESS: [*keys_of(ACCESS).values()],
    POOL: [*keys_of(POOL).values()],
    LOG: [*keys_of(LOG).values()],
}


def table(name: str) -> str:
    """Markdown, one row a setting, in the order of the table."""
    is_queues = name == QUEUES
    heads: tuple[str, ...] = ("key", "default", "allowed", "meaning")
    if not is_queues:
        heads = ("key", "flag, environment", *heads[1:])
    rows = [heads, ("---",) * len(heads), *(cells(setting, is_queues) for setting in TABLES[name])]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cells(setting: Setting, is_queue: bool) -> tuple[str, ...]:
    """One row."""
    rest = (setting.default_text, setting.kind.allowed, setting.says)
    if is_queue:
        return (f"`{setting.key}`", *rest)
    return (f"`{setting.key}`", f"`{setting.flag}`, `{setting.environ}`", *rest)


if __name__ == "__main__":
    for each in TABLES:
        print(f"[{each}]\n\n{table(each)}\n")
