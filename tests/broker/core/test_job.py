"""The row of a job and the object in memory are the same thing, field for field."""

from support.core_builders import a_job

from stoker.broker.core.job import COLUMNS, from_image, image


def test_image_has_a_value_for_every_column() -> None:
    job = a_job(7, id="order-7", token_epoch=3, token_counter=9)
    values = dict(zip(COLUMNS, image(job), strict=True))
    assert (values["number"], values["id"], values["token_counter"]) == (7, "order-7", 9)


def test_job_made_from_an_image_has_that_image() -> None:
    job = a_job(7, headers={"trace": "1"}, cancelling=True, reason="kicked")
    again = from_image(image(job))
    assert image(again) == image(job)
    assert again is not job


def test_image_is_no_view_of_the_job() -> None:
    job = a_job(attempt=1)
    before = image(job)
    job.attempt = 2
    assert before[COLUMNS.index("attempt")] == 1


def test_token_is_epoch_and_counter_of_the_last_lease() -> None:
    assert a_job(token_epoch=3, token_counter=9).token == (3, 9)
