"""Whether the tests see what they should: each of a list of mutants must fail one. python -m tests.mutants --help."""
