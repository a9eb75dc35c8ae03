# One image for all processes; each is started by its command: compose.yaml, docs/containers.md.
# Python 3.11 is the oldest that is supported, and what the tests run on.
ARG PYTHON=3.11
FROM python:${PYTHON}-slim-bookworm AS build

WORKDIR /opt/onramp
ENV PATH=/opt/onramp/.venv/bin:$PATH
# What is installed changes seldom, so it is a layer of its own. EXTRAS are those of pyproject.toml.
ARG EXTRAS=kafka,sqs,traces
COPY pyproject.toml constraints.txt README.md LICENSE AGENTS.md ./
RUN python -m venv .venv && pip install --no-cache-dir -c constraints.txt -e ".[project,${EXTRAS}]"
COPY . .
# Settings are not read from the image: these only let Django start. Nothing connects to this database.
RUN DATABASE_URL=postgres://nobody@127.0.0.1:1/none SECRET_KEY=for-this-command-only ALLOWED_HOSTS=none \
    python manage.py collectstatic --no-input && python -m compileall -q .

FROM python:${PYTHON}-slim-bookworm

# The account owns nothing: it can only read what it runs.
RUN useradd --system --uid 10001 --no-create-home onramp
WORKDIR /opt/onramp
COPY --from=build /opt/onramp /opt/onramp
ENV PATH=/opt/onramp/.venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
CMD ["python", "manage.py", "help"]
