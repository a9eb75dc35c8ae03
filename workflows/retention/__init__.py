"""How long data stays: what has finished long ago is emptied."""
