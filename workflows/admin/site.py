"""The console's own admin site."""

from django.contrib import admin


class ConsoleSite(admin.AdminSite):
    site_title = "Onramp"
    site_header = "Onramp operations"
    index_title = "Operations"
