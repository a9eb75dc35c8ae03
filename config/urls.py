from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

handler400 = "config.errors.bad_request"
handler403 = "config.errors.permission_denied"
handler404 = "config.errors.page_not_found"
handler500 = "config.errors.server_error"

urlpatterns = [
    path("admin/", include("staff.urls")),  # first: the console answers everything else below it
    path("admin/", admin.site.urls),
    path("", RedirectView.as_view(pattern_name="admin:index", http_method_names=["get", "head"])),
    path("", include("workflows.api.urls")),
]
