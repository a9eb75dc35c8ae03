from tests.workflows.features.outages.conftest import a_vote_for_each_step, cohorts_at_once, programs

__all__ = ["a_vote_for_each_step", "cohorts_at_once", "programs"]
