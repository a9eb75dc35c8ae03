"""How long data stays: what has finished long ago is emptied, or what a person asks to have erased."""
