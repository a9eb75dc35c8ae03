"""The pages of signing in that allauth names: only those that the console uses, below /admin/."""

from __future__ import annotations

from django.urls import path
from django.views.generic import RedirectView

from staff import enrolment, single_sign_on, step_up
from staff.second_factor import CodeView

urlpatterns = [
    path("sign-in/", RedirectView.as_view(pattern_name="admin:login", query_string=True), name="account_login"),
    path("single-sign-on/", single_sign_on.start, name="single_sign_on"),
    path("single-sign-on/callback/", single_sign_on.callback, name="openid_connect_callback"),
    path("single-sign-on/end/", single_sign_on.end_by_provider, name="single_sign_on_end"),
    path("second-factor/", CodeView.as_view(), name="mfa_authenticate"),
    path("confirm/", step_up.confirm, name="step_up"),
    path("second-factor/link/<str:token>/", enrolment.open_link, name="second_factor_link"),
    path("second-factor/enrol/", enrolment.EnrolView.as_view(), name="second_factor_enrol"),
    path("second-factor/enrol/picture.svg", enrolment.PictureView.as_view(), name="second_factor_picture"),
]
