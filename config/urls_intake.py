"""What the intake answers: the API and health; anything else is a 404 in the API's form, with DEBUG on as well."""

from django.urls import URLPattern, re_path

from workflows import urls
from workflows.views.problems import not_found

urlpatterns: list[URLPattern] = [*urls.urlpatterns, re_path("", not_found)]
