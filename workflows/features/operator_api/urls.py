"""The addresses of the operator's API, below `v1/operator/`."""

from __future__ import annotations

from django.urls import URLPattern, path

from workflows.features.operator_api import views

urlpatterns: list[URLPattern] = [
    path("workflows", views.workflows, name="operator-workflows"),
    path("workflows/find", views.find, name="operator-find"),
    path("workflows/<int:number>", views.workflow, name="operator-workflow"),
    path("workflows/<int:number>/history", views.history, name="operator-history"),
    path("workflows/<int:number>/ledger", views.ledger, name="operator-ledger"),
    path("tasks", views.tasks, name="operator-tasks"),
    path("tasks/<int:number>", views.task, name="operator-task"),
    path("counts", views.counts, name="operator-counts"),
    path("bulk-previews", views.bulk_preview, name="operator-bulk-preview"),
    path("proposals", views.all_proposals, name="operator-proposals"),
    path("proposals/<int:number>", views.proposal, name="operator-proposal"),
    path("proposals/<int:number>/withdraw", views.withdraw, name="operator-withdraw"),
]
