"""Full rows: workflows as the console meets them after a year, with all that belongs to them.

Of each thousand 858 are complete and 40 have failed, spread over 400 days; 10 were cancelled, 20 wait for a person, 10
for a signal; 50 are parked on three services, 8 retry, 4 are being reversed. Besides, a twentieth has failed together
on one day half a year ago, and as many have today. What failed has 200 causes. The newest are queued, and twenty before
them are running.
"""

from __future__ import annotations

from tests.benchmark.database import PAYLOAD, Database

COMMON, MEDIUM, RARE, ABSENT = "onboarding", "no_ops", "entered", "held"
DAYS = 400
# Whole days ago: on the one a twentieth of all rows has failed, on the other none.
BAD_DAY, GOOD_DAY = 200, 100
# One of the causes of failures; the others are alike.
STEP, CODE = "start_visit", "code_7"
# Rows by number, of a million.
EVENTFUL = 400_400
TASKS = "mod(n, 1000) BETWEEN 50 AND 69 OR mod(n, 1000) BETWEEN 500 AND 679"

# Which kind of row number n of so many is, how old, and of which type. The others read it from here.
_KINDS = f"""
    DROP TABLE IF EXISTS kinds;
    CREATE TEMP TABLE kinds AS
    SELECT n, mod(n, 1000) AS of_thousand, mod(n / 7, 200) AS cause,
           now() - interval '{DAYS} days' * (1 - n::float / %(rows)s) AS created,
           CASE WHEN mod(n, %(rows)s / 20 - 1) = 5 THEN '{RARE}'
                WHEN mod(n, 20) = 1 THEN '{MEDIUM}' ELSE '{COMMON}' END AS type,
           CASE WHEN n > 0.986 * %(rows)s THEN 'queued'
                WHEN n > 0.986 * %(rows)s - 20 THEN 'running'
                WHEN n > 0.92 * %(rows)s AND n <= 0.97 * %(rows)s THEN 'failed today'
                WHEN n > 0.45 * %(rows)s AND n <= 0.5 * %(rows)s THEN 'failed on the bad day'
                WHEN mod(n, 1000) < 40 THEN 'failed'
                WHEN mod(n, 1000) < 50 THEN 'cancelled'
                WHEN mod(n, 1000) < 70 THEN 'asks'
                WHEN mod(n, 1000) < 80 THEN 'listens'
                WHEN mod(n, 1000) < 130 THEN 'parked'
                WHEN mod(n, 1000) < 138 THEN 'retries'
                WHEN mod(n, 1000) < 142 THEN 'reversed'
                ELSE 'complete' END AS kind
      FROM generate_series(%(first)s, %(last)s) n"""

_WORKFLOWS = f"""
    INSERT INTO workflows_workflow (
           id, idempotency_key, workflow_type, payload, context, linking_id, created_at, queue, status, invisible_until,
           begun, retry_count, parked_on, parked_at, waiting_for, wake_on, expires_at, compensating, cancelled_at,
           current_step, last_error_class, last_error_code, last_error_message, completed_at)
    SELECT n, gen_random_uuid(), type,
           jsonb_set(%(payload)s::jsonb, '{{patient,email}}', to_jsonb('p' || n || '@example.com')),
           CASE kind WHEN 'queued' THEN '{{}}'
                ELSE jsonb_build_object('patient_uuid', gen_random_uuid(), 'visit_uuid', gen_random_uuid(),
                                        'charge_id', 'ch_' || n) END,
           CASE WHEN mod(n, 20000) = 3 THEN 'family' WHEN mod(n, 2) = 0 THEN 'acc-' || n END,
           created, 'default',
           CASE WHEN kind IN ('failed', 'failed today', 'failed on the bad day', 'cancelled') THEN 'FAILED'
                WHEN kind = 'complete' THEN 'COMPLETE' ELSE 'PENDING' END,
           CASE WHEN kind IN ('asks', 'listens') THEN now() + interval '3 days' * (of_thousand / 100.0)
                WHEN kind IN ('parked', 'retries', 'reversed') THEN now() + interval '2 hours' ELSE created END,
           kind <> 'queued',
           CASE WHEN kind IN ('failed', 'failed today', 'failed on the bad day') THEN 5
                WHEN kind IN ('parked', 'reversed') THEN 1 WHEN kind = 'retries' THEN 1 + mod(n, 5) ELSE 0 END,
           CASE kind WHEN 'parked' THEN (ARRAY['payments', 'programs', 'insurance'])[1 + mod(n, 3)] ELSE '' END,
           CASE kind WHEN 'parked' THEN now() - interval '30 minutes' END,
           CASE kind WHEN 'asks' THEN 'a clinician''s decision' WHEN 'listens' THEN 'the signal linked'
                WHEN 'parked' THEN 'the service, which is unavailable' ELSE '' END,
           CASE kind WHEN 'asks' THEN ARRAY['decision:' || n] WHEN 'listens' THEN ARRAY['linked'] ELSE '{{}}' END,
           CASE WHEN kind IN ('asks', 'listens', 'parked', 'retries', 'queued') THEN now() + interval '30 days' END,
           kind = 'reversed',
           CASE kind WHEN 'cancelled' THEN created + interval '2 minutes' END,
           CASE WHEN kind IN ('complete', 'queued', 'running') THEN '' WHEN kind LIKE 'failed%%' THEN
                (ARRAY['execute_checkout', 'start_visit', 'update_address', 'save_insurance', 'exchange_token'])
                    [1 + mod(cause, 5)] ELSE 'execute_checkout' END,
           CASE WHEN kind LIKE 'failed%%' OR kind IN ('retries', 'parked', 'reversed') THEN 'StepError' ELSE '' END,
           CASE WHEN kind LIKE 'failed%%' AND cause >= 5 THEN 'code_' || cause / 5
                WHEN kind LIKE 'failed%%' OR kind IN ('retries', 'parked', 'reversed') THEN 'card_declined' ELSE '' END,
           CASE WHEN kind LIKE 'failed%%' THEN 'The card was declined.' ELSE '' END,
           CASE kind WHEN 'failed today' THEN
                         date_trunc('day', now()) + (now() - date_trunc('day', now())) * (mod(n, 5000) / 5000.0)
                     WHEN 'failed on the bad day' THEN
                         date_trunc('day', now()) - interval '{BAD_DAY} days' + interval '1 day' * mod(n, 5000) / 5000
                     WHEN 'failed' THEN CASE WHEN date_trunc('day', created) =
                         date_trunc('day', now()) - interval '{GOOD_DAY} days' THEN created - interval '1 day'
                         ELSE created + interval '1 minute' END
                     WHEN 'cancelled' THEN created + interval '2 minutes'
                     WHEN 'complete' THEN created + interval '1 minute' END
      FROM kinds"""

_STEPS = """
    (SELECT jsonb_agg(jsonb_build_object('step', step, 'outcome', 'ran', 'ms', 12)) FROM unnest(ARRAY[
        'validate_payload', 'create_account', 'exchange_token', 'start_visit', 'update_personal_information',
        'update_address', 'save_insurance', 'save_questionnaire', 'execute_checkout', 'enroll_in_program']) step)"""

_ATTEMPTS = f"""
    WITH steps AS MATERIALIZED (SELECT {_STEPS} AS steps)
    INSERT INTO workflows_attempt (workflow_id, number, worker, release, opened_at, closed_at, outcome, steps)
    SELECT n, number, 'host-' || mod(n, 50) || ':41', 'r' || n / 50000, created,
           CASE kind WHEN 'running' THEN NULL ELSE created + interval '1 minute' END,
           CASE WHEN kind = 'running' THEN '' WHEN kind = 'complete' THEN 'complete'
                WHEN kind LIKE 'failed%%' THEN 'failed' ELSE 'waiting' END,
           CASE kind WHEN 'running' THEN '[]' ELSE steps END
      FROM kinds, steps, generate_series(1, CASE WHEN of_thousand < 142 AND kind <> 'running' THEN 2 ELSE 1 END) number
     WHERE kind <> 'queued'"""

_EVENTS = """
    INSERT INTO workflows_event (workflow_id, at, kind, attempt, step, detail)
    SELECT n, created + number * interval '20 seconds',
           CASE WHEN number = 1 THEN 'retry_scheduled' WHEN kind = 'complete' THEN 'completed'
                WHEN kind LIKE 'failed%%' THEN 'failed' ELSE 'waiting' END,
           number, 'execute_checkout', '{"error_code": "card_declined", "failures": 1, "max_attempts": 5}'
      FROM kinds, generate_series(1, 2) number
     WHERE kind NOT IN ('queued', 'running')"""

_EFFECTS = """
    INSERT INTO workflows_effect (workflow_id, step, state, idempotency_key, attempt, result, settled_at, settled_by,
                                  has_undo)
    SELECT n, step, CASE WHEN kind = 'cancelled' THEN 'undone' ELSE 'done' END, n || ':' || step, n,
           jsonb_build_object('charge_id', 'ch_' || n, 'payment_status', 'paid'), created, 'call', true
      FROM kinds, unnest(ARRAY['execute_checkout', 'enroll_in_program']) step
     WHERE kind NOT IN ('queued', 'running')"""

_KEYS = """
    INSERT INTO workflows_searchkey (hash, workflow_id, key_id)
    SELECT substr(uuid_send(gen_random_uuid()), 1, 16), n, 1 FROM kinds, generate_series(1, 2)"""

_WAITS = f"""
    INSERT INTO workflows_wait (id, workflow_id, name, waiting_for, created_at, deadline, outcome, resolved_at)
    SELECT n, n, 'review', 'a clinician''s decision', created, now() + interval '3 days',
           CASE kind WHEN 'asks' THEN '' ELSE 'approved' END, CASE kind WHEN 'asks' THEN NULL ELSE created END
      FROM kinds WHERE kind IN ('asks', 'complete') AND ({TASKS})"""

_TASKS = f"""
    INSERT INTO workflows_manualtask (id, workflow_id, wait_id, task_type, question, facts, state, created_at, due_at,
                                      expires_at, team, assignee_id, claimed_at, decided_by_id, decided_at)
    SELECT n, n, n,
           CASE WHEN mod(n, 25) = 0 THEN 'effect_in_doubt' WHEN mod(n, 25) = 1 THEN 'undo_in_doubt'
                WHEN mod(n, 5) = 2 THEN 'address check' ELSE 'clinical review' END,
           'May this patient be enrolled?',
           '[["Height", "170 cm"], ["Weight", "92 kg"], ["Conditions", "none"], ["Medications", "none"]]',
           CASE WHEN kind = 'asks' THEN 'open' WHEN mod(n, 100) = 7 THEN 'rejected'
                WHEN mod(n, 10000) = 511 THEN 'expired' ELSE 'approved' END,
           created, CASE WHEN mod(n, 3) > 0 THEN now() + interval '1 hour' * (mod(n, 97) - 30) END,
           now() + interval '1 hour' * (mod(n, 89) + 1),
           CASE WHEN mod(n, 25) < 2 THEN 'operations' WHEN mod(n, 2) = 0 THEN 'clinicians' ELSE '' END,
           person, CASE WHEN person IS NULL THEN NULL ELSE created END,
           CASE kind WHEN 'asks' THEN NULL ELSE 1 + mod(n, 40) END, CASE kind WHEN 'asks' THEN NULL ELSE created END
      FROM (SELECT *, CASE WHEN mod(n, 4) = 0 THEN 1 + mod(n / 4, 40) END AS person FROM kinds) kinds
     WHERE kind IN ('asks', 'complete') AND ({TASKS})"""

_FOLLOW_UPS = """
    INSERT INTO workflows_followup (workflow_id, step, queue, due_at, failures)
    SELECT n, 'send_confirmation', 'default',
           CASE WHEN of_thousand < 902 THEN NULL ELSE now() + interval '2 hours' END, 2
      FROM kinds WHERE kind = 'complete' AND of_thousand BETWEEN 900 AND 909"""

_OF_EACH = (_KINDS, _WORKFLOWS, _ATTEMPTS, _EVENTS, _EFFECTS, _KEYS, _WAITS, _TASKS, _FOLLOW_UPS)

# People first: tasks name them. The first two are those who ask for the pages.
_PEOPLE = """
    INSERT INTO auth_user (id, username, password, is_superuser, is_staff, is_active, date_joined, first_name,
                           last_name, email)
    SELECT n, CASE n WHEN 1 THEN 'superuser' WHEN 2 THEN 'support' ELSE 'person-' || n END, '!', n = 1, true, true,
           now(), '', '', ''
      FROM generate_series(1, 40) n;
    INSERT INTO auth_group (name) VALUES ('clinicians') ON CONFLICT DO NOTHING;
    INSERT INTO auth_user_groups (user_id, group_id)
    SELECT n, g.id FROM generate_series(2, 40) n, auth_group g
     WHERE g.name = CASE WHEN n = 2 THEN 'support' ELSE 'approver' END OR g.name = 'clinicians' AND n > 2;
    SELECT setval(pg_get_serial_sequence('auth_user', 'id'), 1000)"""

_AROUND = f"""
    INSERT INTO workflows_event (workflow_id, kind, attempt, step, detail)
    SELECT {{eventful}}, 'retry_scheduled', 1, 'execute_checkout', '{{{{"failures": 1}}}}'
      FROM generate_series(1, 2000);
    INSERT INTO workflows_attempt (workflow_id, number, worker, closed_at, outcome, steps)
    SELECT {{eventful}}, n, 'host-1:41', now(), 'retry', {_STEPS} FROM generate_series(3, 60) n;
    INSERT INTO workflows_effect (workflow_id, step, generation, state, idempotency_key, attempt, result)
    SELECT {{eventful}}, 'execute_checkout', n, 'done', '{{eventful}}:' || n, 1, '{{{{}}}}'
      FROM generate_series(2, 40) n;
    INSERT INTO workflows_service (name, since, failed, answered, opened_at, retry_at)
    SELECT name, now() - interval '1 hour', 9, 1,
           CASE WHEN name IN ('payments', 'programs') THEN now() - interval '1 hour' END, now() + interval '5 seconds'
      FROM unnest(ARRAY['accounts', 'tokens', 'profiles', 'insurance', 'visits', 'payments', 'programs']) name;
    INSERT INTO workflows_circuitevent (service, kind, reason)
    SELECT name, 'opened', '9 of 10 votes' FROM workflows_service, generate_series(1, 2000);
    INSERT INTO workflows_workerprocess (name, host, pid, queue, stopped_at, last_seen)
    SELECT 'host-' || n || ':41', 'host-' || n, 41, 'default',
           CASE WHEN n > 50 THEN now() - n * interval '0.5 minutes' END, now()
      FROM generate_series(1, 1500) n;
    INSERT INTO workflows_undeliveredmessage (topic, partition, "offset", code, reason, content)
    SELECT 'facts', mod(n, 12), n, 'field_unknown', 'No such field.', to_jsonb(repeat('x', 700))
      FROM generate_series(1, 50000) n;
    INSERT INTO workflows_apikey (name, prefix, digest)
    SELECT 'client ' || n, 'onr_' || n, sha256(convert_to(n::text, 'UTF8')) FROM generate_series(1, 200) n"""


# What superuser has chosen, and has not started: of the newest failures as many as one operation may have.
_CHOSEN = """
    INSERT INTO workflows_bulkoperation (verb, chosen_by, selected, asked_by_id) VALUES ('retry', 'all', 0, 1);
    INSERT INTO workflows_bulkitem (operation_id, row, seen)
    SELECT bulk.id, failed.id, 1 FROM workflows_bulkoperation bulk,
           (SELECT id FROM workflows_workflow WHERE status = 'FAILED' ORDER BY completed_at DESC LIMIT 10000) failed;
    UPDATE workflows_bulkoperation SET selected = (SELECT count(*) FROM workflows_bulkitem)"""


# The bare ones have the higher numbers, for tables grow at their end.
_BARE = f"""
    INSERT INTO workflows_workflow (id, idempotency_key, workflow_type, payload, status, completed_at)
    SELECT %(rows)s + n, gen_random_uuid(), '{COMMON}', '{{}}', 'COMPLETE', now()
      FROM generate_series(%(first)s, %(last)s) n"""


def fill(database: Database, rows: int, bare: int) -> None:
    """So many full rows, and before them in time so many bare ones: complete, and with nothing that belongs to them."""
    database.execute("SET synchronous_commit TO off")
    database.execute(_PEOPLE)
    database.fill("full rows", rows, *_OF_EACH, rows=rows, payload=PAYLOAD.read_text())
    database.execute(_AROUND.format(eventful=min(EVENTFUL, rows // 2)))
    database.execute(_CHOSEN)
    database.fill("bare rows", bare, _BARE, rows=rows)
    for table in ("workflow", "wait", "manualtask"):
        name = f"workflows_{table}"
        database.execute(f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), (SELECT max(id) FROM {name}))")
    database.analyze()
    database.execute("CHECKPOINT")
