# `make` alone lists what there is to do. Nothing has to be installed or activated first: each target makes the
# virtual environment in .venv when it is missing or out of date, and with DEBUG the project brings its own PostgreSQL.

# The first of these that is Python 3.11 or newer. To choose: make test PYTHON=/path/to/python3
PYTHONS = python3 python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(shell for python in $(PYTHONS); do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)

# Another project's virtual environment may be active, with paths of its own. And without their caches all the processes
# that the tests start would compile the project again.
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE

# How many tests run at a time: somewhat more than the cores of a small machine, for many of them wait. 0 is one after
# another.
TESTS_AT_ONCE ?= 3

VENV = .venv/bin/python
INSTALLED = .venv/.installed

# What production must set: the checks are of settings as they are there. Nothing connects to this database.
PRODUCTION = DEBUG=0 ALLOWED_HOSTS=onramp.example.com DATABASE_URL=postgres://onramp@127.0.0.1:1/onramp \
	SERVICES_URL=https://services.example.com \
	SECRET_KEY=only-for-the-checks-long-and-of-many-characters-0123456789 \
	DATA_KEYS=only-for-the-checks-yet-another-one-of-many-characters-0123456789 \
	SEARCH_KEYS=only-for-the-checks-another-one-of-many-characters-0123456789

# A tenth of the tests, whose processes sign in with their roles. Others do as a person what only a test can, in the
# midst of a worker's turn, or look at what a session did last.
WITH_ROLES = $(addprefix tests/workflows/,api/test_asgi.py api/test_bounds.py api/test_of_workflow.py \
	api/test_submissions.py api/test_workflows.py intake/test_batching.py features/queues/test_submissions.py \
	features/outbox/test_chores.py features/by_hand/test_page.py effects/test_ledger.py engine/test_claim.py \
	waits/test_approval.py waits/test_asking_again.py waits/test_children.py waits/test_signal.py waits/test_time.py) \
	$(addprefix tests/acceptance/,test_no_feature.py test_intake.py::test_400_submissions_each_sent_twice_at_once_become_400_rows \
	test_runworker.py::test_two_processes_run_each_of_500_workflows_exactly_once) \
	--deselect tests/workflows/api/test_workflows.py::test_an_input_is_never_in_the_text_of_a_statement

.PHONY: help venv test test-all test-edges test-roles test-failover mutants bench bench-quick bench-big bench-console lint format demo pictures docs db-start db-stop clean
.DEFAULT_GOAL := help

# On the embedded PostgreSQL, unless there is a DATABASE_URL.
test test-all test-edges test-roles test-failover mutants bench bench-quick bench-big bench-console lint demo pictures docs: export DEBUG = 1

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo '  Arguments go through ARGS: make test-all ARGS="-x tests/console", make demo ARGS="--exit --submissions 60"'
	@echo '  What people and faults may do to one patient, for longer: WALKS=500 make test-all ARGS=tests/workflows/model'
	@echo '  make test runs $(TESTS_AT_ONCE) tests at a time; one after another: make test TESTS_AT_ONCE=0'

venv: $(INSTALLED) ## Make .venv, with the exact versions of constraints.txt (the others do that by themselves)

test: $(INSTALLED) ## Run the tests that a change needs (some minutes), on the embedded PostgreSQL or on DATABASE_URL
	@$(VENV) -m pytest -n $(TESTS_AT_ONCE) $(ARGS)

test-all: $(INSTALLED) ## Run all tests: with real processes that are killed and hang, with Kafka, and in a browser (chromium)
	@$(VENV) -m pytest -m "" -n $(TESTS_AT_ONCE) $(ARGS)

test-edges: $(INSTALLED) ## Run a tenth of the tests with the oldest and the newest Python and Django that are here
	@$(VENV) -m tests.edges $(ARGS)

test-roles: $(INSTALLED) ## Run a tenth of the tests, each process with its role in the database (a server that trusts us)
	@$(VENV) -m pytest -m "" -n 2 --roles $(WITH_ROLES) $(ARGS)

test-failover: $(INSTALLED) ## Kill, stop and cut off primaries of a Patroni cluster under load (root, Debian's patroni, half an hour)
	@$(VENV) -m tests.failover $(ARGS)

mutants: $(INSTALLED) ## Take fences, locks and orders out in turn (an hour), or conditions of a change, and see a test fail
	@$(VENV) -m tests.mutants $(ARGS)

bench: $(INSTALLED) ## Measure intake, drain, pick-up, claim and more beside their floors and the peers (some 40 minutes)
	@$(VENV) -m tests.benchmark $(ARGS)

bench-quick: $(INSTALLED) ## The same with small sizes (some two minutes)
	@$(VENV) -m tests.benchmark --quick $(ARGS)

bench-big: $(INSTALLED) ## Measure maintenance on a table of 3,000,000 rows
	@$(VENV) -m tests.benchmark.big $(ARGS)

bench-console: $(INSTALLED) ## Measure each page of the console on tables of 1,000,000 full rows
	@$(VENV) -m tests.benchmark.console $(ARGS)

lint: $(INSTALLED) ## Check style, types, imports, settings, migrations, links of the docs and the Dockerfile
	$(VENV) -m ruff check
	$(VENV) -m ruff format --check
	$(VENV) -m mypy
	$(VENV) .venv/bin/lint-imports --no-logo
	$(VENV) -m tests.bounds
	$(VENV) -m tests.site
	.venv/bin/hadolint Dockerfile
	$(VENV) manage.py check
	$(PRODUCTION) $(VENV) manage.py check --deploy --fail-level WARNING
	@# It warns that it cannot ask the database for the migrations applied there; we ask for the missing ones only.
	$(PRODUCTION) $(VENV) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run

format: $(INSTALLED) ## Format the code, and mend what ruff can mend
	@$(VENV) -m ruff check --fix
	@$(VENV) -m ruff format

demo: $(INSTALLED) ## Run everything with realistic submissions, until Ctrl-C
	@exec $(VENV) manage.py demo $(ARGS)

pictures: $(INSTALLED) ## Take the pictures of the docs again, over a demo of its own (a minute; Debian's chromium)
	@$(VENV) -m tests.pictures $(ARGS)

docs: $(INSTALLED) ## Build the docs as a site: open site/index.html, from the file (some seconds; a broken link fails)
	@$(VENV) -m tests.site $(ARGS)

db-start: $(INSTALLED) ## Start the embedded PostgreSQL (what needs it does so by itself)
	@$(VENV) -m config.embedded start

db-stop: $(INSTALLED) ## Stop the embedded PostgreSQL
	@$(VENV) -m config.embedded stop

clean: ## Remove what the others made: .venv, the embedded PostgreSQL with its data, caches
	@if [ -e var/postgres.lock ] && [ -e $(INSTALLED) ]; then $(VENV) -m config.embedded remove; fi
	@rm -rf .venv var site staticfiles *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then \
		echo "Python 3.11 or newer is needed, and none of these is: $(PYTHONS)." >&2; \
		echo "Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; \
		exit 1; }
	@# One that is there and works is kept; pip changes only what differs.
	@$(VENV) -m pip --version >/dev/null 2>&1 || { echo "Making .venv"; $(PYTHON) -m venv --clear .venv; }
	@echo "Installing the packages of constraints.txt"
	@$(VENV) -m pip install -qq --disable-pip-version-check --no-input -c constraints.txt -e '.[dev]'
	@touch $@
