"""The demo: every process of the system on this machine, realistic submissions, and a look at what came of them."""
