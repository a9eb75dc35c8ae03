"""The pages of signing in that allauth names: only those that the console uses, below /admin/."""

from __future__ import annotations

from django.db.transaction import non_atomic_requests
from django.urls import path
from django.views.generic import RedirectView

from staff import enrolment, single_sign_on, step_up, still_signed_in
from staff.second_factor import CodeView

# With ATOMIC_REQUESTS, too: a provider may take seconds to answer.
pages = [
    ("sign-in/", RedirectView.as_view(pattern_name="admin:login", query_string=True), "account_login"),
    ("single-sign-on/", single_sign_on.start, "single_sign_on"),
    ("single-sign-on/callback/", single_sign_on.callback, "openid_connect_callback"),
    ("single-sign-on/end/", still_signed_in.end_by_provider, "single_sign_on_end"),
    ("second-factor/", CodeView.as_view(), "mfa_authenticate"),
    ("confirm/", step_up.confirm, "step_up"),
    ("second-factor/link/<str:token>/", enrolment.open_link, "second_factor_link"),
    ("second-factor/enrol/", enrolment.EnrolView.as_view(), "second_factor_enrol"),
    ("second-factor/enrol/picture.svg", enrolment.PictureView.as_view(), "second_factor_picture"),
]
urlpatterns = [path(route, non_atomic_requests(view), name=name) for route, view, name in pages]
