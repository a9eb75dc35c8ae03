"""The steps, by subject. `onboarding.workflow` has them in their order, with their policies.

Each may be run any number of times: it changes other systems under a key that names the workflow and the step, with a
body made of the payload and of ids that no attempt changes.
"""
