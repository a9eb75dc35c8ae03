"""Search: people find a patient's workflow by hashes of what they know about the patient."""
