"""The steps, by what they are about. `onboarding.workflow` has them in their order, with their policies.

Each may be run any number of times: what it changes elsewhere it changes under a key that names the workflow and the
step, with a body that is made of the payload and of ids that no attempt changes.
"""
