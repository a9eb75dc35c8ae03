"""Signals: everything that can wake a workflow is stored, matched, and told to the workers."""
