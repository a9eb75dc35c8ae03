"""How long data is stored: workflows that finished long ago are emptied, as are those that a person has erased."""
