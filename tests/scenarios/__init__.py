"""Processes other than onboarding, one file each, as their authors would write them; tests/acceptance runs them.

The documentation shows them: its code blocks are excerpts of these files, and a test holds them together.
"""
