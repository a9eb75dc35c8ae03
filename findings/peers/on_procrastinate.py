from job import job
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(kwargs={"dbname": "procrastinate"}))


@app.task(name="job")
def run(kind):
    job("procrastinate", kind)
