from tests.edges import ROOT, TENTH


def test_the_tests_of_the_edges_are_where_it_looks_for_them() -> None:
    assert not [each for each in TENTH if not (ROOT / each).exists()]
