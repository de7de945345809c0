"""Two apps on one broker: each with its own name, its own pool and its own kind of work.

    stoker broker                                            # one broker for both
    stoker pool two_apps:shop --workers 2 --queues orders,default
    stoker pool two_apps:blog --workers 1 --queues default
    stoker enqueue shop.publish --args '["a lamp"]'
    stoker enqueue blog.publish --args '["a story"]'

Both have a handler `publish`; the names of the apps keep the kinds apart. A worker gets only kinds that
it knows, so neither pool ever sees the other's jobs.
"""

from stoker import App

shop = App(name="shop")
blog = App(name="blog")


@shop.job(queue="orders")
def charge(order: str, cents: int) -> str:
    return f"{order}: {cents / 100:.2f}"


@shop.job(name="publish")
def publish_product(title: str) -> str:
    return f"in the window: {title}"


@blog.job(name="publish")
def publish_story(title: str) -> str:
    return f"on the front page: {title}"
