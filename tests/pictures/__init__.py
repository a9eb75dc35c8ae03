"""Takes the pictures of the console that the docs show: `make pictures`, over the scenes of the demo."""
