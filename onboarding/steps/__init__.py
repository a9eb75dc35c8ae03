"""The steps, by subject. `onboarding.workflow` lists them in order, with their policies.

Each may run any number of times: it changes other systems under a key that names the workflow and the step, with a body
from the payload and from ids that no attempt changes.
"""
