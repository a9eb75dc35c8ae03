from django.tasks import task
from job import job


@task
def run(kind):
    job("django", kind)
