"""What the intake answers: submissions and health; anything else is a 404 in the API's form, with DEBUG on as well."""

from django.urls import URLPattern, re_path

from workflows.api.problems import not_found
from workflows.api.urls import INTAKE

urlpatterns: list[URLPattern] = [*INTAKE, re_path("", not_found)]
