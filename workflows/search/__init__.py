"""Search: how people find the workflow of a patient, by hashes of what they know."""
