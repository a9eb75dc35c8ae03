"""Signals: everything that can wake a workflow is stored, matched, and announced to the workers."""
