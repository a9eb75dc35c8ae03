#!/usr/bin/env bash
# celery 5.7.0 (valkey 9.1.2, which speaks Redis' protocol), procrastinate 3.10.0, dbos 3.4.0, temporalio 1.35.0
# (server 1.32.0, on SQLite), django-tasks-db 0.13.0 (Django 6.1.3); psycopg 3.3.9, PostgreSQL 18.4, Python 3.12 or
# newer, Linux. Seven minutes. The options are the defaults; Temporal makes one state a timeout: here 20 s.
