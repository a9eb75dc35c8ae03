"""Looks into tables for a role that may not read them, such as the intake's (`manage.py grants`).

Each function runs with the rights of its owner, and its answer is narrow: somebody who has the role's password learns
by it no more than what its comment says. Roles that may read the submissions anyway may call them; `manage.py grants`
adds the others. https://www.postgresql.org/docs/current/sql-createfunction.html#SQL-CREATEFUNCTION-SECURITY
"""

from typing import Any

from django.db import migrations

# Whether a payload is the one that was sent first: NULL if it is not. Otherwise the stored envelopes of its secrets, in
# the order of the fields, for the caller to open and compare; a JSON null if all was deleted. Only a sealed value is
# left out of the comparison. A secret that is still in clear, from before its field was secret, is compared by its
# digest. So a guess has to be right about the whole payload, and nothing tells which part of it was wrong.
COMPARE = """
    CREATE FUNCTION workflows_compare(which bigint, sent jsonb, secrets text[], digests jsonb) RETURNS jsonb
    STABLE LANGUAGE plpgsql SECURITY DEFINER SET search_path = {path} AS $$
    DECLARE
        kept record; path text[]; stored text; sealed jsonb := '[]';
    BEGIN
        SELECT w.payload, coalesce(o.payload, w.payload) AS first, w.emptied_at INTO kept FROM workflows_workflow w LEFT JOIN workflows_originalpayload o ON o.workflow_id = w.id WHERE w.id = which;
        IF kept.emptied_at IS NOT NULL THEN
            RETURN 'null'::jsonb;
        END IF;
        FOR i IN 1 .. cardinality(secrets) LOOP
            path := string_to_array(secrets[i], '.');
            stored := kept.payload #>> path;
            sealed := sealed || jsonb_build_array(CASE WHEN starts_with(stored, 'sealed:') THEN stored END);
            IF starts_with(stored, 'sealed:') OR digests ->> (i - 1)
               = encode(sha256(convert_to(stored, 'UTF8')), 'hex') THEN
                kept.first := kept.first #- path;
                sent := sent #- path;
            END IF;
        END LOOP;
        RETURN CASE WHEN kept.first = sent THEN sealed END;
    END $$"""

# The amount of a charge, for the sentence about it: a number beside a currency, in the same object of the payload, of a
# workflow that has made calls.
AMOUNT = """
    CREATE FUNCTION workflows_amount(which bigint, amount text[], currency text[]) RETURNS jsonb
    STABLE LANGUAGE sql SECURITY DEFINER SET search_path = {path} AS $$
        SELECT jsonb_build_array(payload #> amount, payload #> currency) FROM workflows_workflow
         WHERE id = which AND trim_array(amount, 1) = trim_array(currency, 1)
           AND jsonb_typeof(payload #> amount) = 'number' AND payload #>> currency ~ '^[A-Za-z]{{3}}$'
           AND EXISTS (SELECT FROM workflows_effect WHERE workflow_id = which)
    $$"""

# What tells whether a call charged: its result, but of the field that identifies the charge only whether it is filled;
# and whether a person settled it, not who.
CALL = """
    CREATE FUNCTION workflows_call(which bigint, reference text) RETURNS jsonb
    STABLE LANGUAGE sql SECURITY DEFINER SET search_path = {path} AS $$
        SELECT jsonb_build_object(
               'result', CASE WHEN result IS NOT NULL
                              THEN jsonb_build_object(reference, nullif(result ->> reference <> '', false)) END,
               'settled_by', CASE WHEN settled_by IN ('', 'call', 'lookup') THEN settled_by ELSE 'a person' END)
          FROM workflows_effect WHERE id = which
    $$"""

# The best-effort steps that failed in a complete workflow and were not done since, with the codes of their errors.
PASSED_OVER = """
    CREATE FUNCTION workflows_passed_over(which bigint) RETURNS TABLE (step text, code text)
    STABLE LANGUAGE sql SECURITY DEFINER SET search_path = {path} AS $$
        SELECT failed ->> 'step', coalesce(failed ->> 'error_code', '')
          FROM workflows_attempt a, jsonb_array_elements(a.steps) AS failed
         WHERE a.workflow_id = which AND a.outcome = 'complete' AND failed ->> 'outcome' = 'best_effort_failed'
           AND NOT EXISTS (SELECT FROM workflows_event e WHERE e.workflow_id = which AND e.kind = 'followed_up'
                                                           AND e.step = failed ->> 'step')
    $$"""

# The outcome of the question before an undo, NULL if there is none; and whether one is to be asked. A request to cancel
# that came just as the workflow failed is too late to cancel it, but in time to have it reversed without a question.
UNDO_QUESTION = """
    CREATE FUNCTION workflows_undo_question(which bigint, OUT outcome text, OUT is_asked boolean)
    STABLE LANGUAGE sql SECURITY DEFINER SET search_path = {path} AS $$
        SELECT (SELECT w.outcome FROM workflows_wait w
                 WHERE w.workflow_id = which AND w.name = 'before_undo:' AND NOT w.superseded),
               coalesce((SELECT detail ? 'asks' FROM workflows_event
                          WHERE workflow_id = which AND kind IN ('compensating', 'cancel_too_late')
                          ORDER BY id DESC LIMIT 1), false)
               AND NOT EXISTS (SELECT FROM workflows_signal s
                                WHERE s.workflow_id = which AND s.name = 'cancel' AND s.closed_at IS NULL)
    $$"""

FUNCTIONS = {
    "workflows_compare(bigint, jsonb, text[], jsonb)": COMPARE,
    "workflows_amount(bigint, text[], text[])": AMOUNT,
    "workflows_call(bigint, text)": CALL,
    "workflows_passed_over(bigint)": PASSED_OVER,
    "workflows_undo_question(bigint)": UNDO_QUESTION,
}

READERS = """
    SELECT DISTINCT quote_ident(rolname) FROM pg_roles, aclexplode((
           SELECT relacl FROM pg_class WHERE oid = 'workflows_workflow'::regclass)) AS held
     WHERE held.grantee = pg_roles.oid AND held.privilege_type = 'SELECT'"""


def create(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT quote_ident(current_schema())")
        path = f"pg_catalog, {cursor.fetchone()[0]}, pg_temp"  # the last: nobody's temporary table stands before ours
        cursor.execute(READERS)
        readers = [role for (role,) in cursor.fetchall()]
    for function, sql in FUNCTIONS.items():
        schema_editor.execute(sql.format(path=path))
        schema_editor.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
        for role in readers:
            schema_editor.execute(f"GRANT EXECUTE ON FUNCTION {function} TO {role}")


def drop(apps: Any, schema_editor: Any) -> None:
    for function in FUNCTIONS:
        schema_editor.execute(f"DROP FUNCTION {function}")


class Migration(migrations.Migration):
    dependencies = [("workflows", "0021_confirmations")]

    operations = [migrations.RunPython(create, drop)]
