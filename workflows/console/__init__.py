"""The console: one file for each page, over Django's admin."""
