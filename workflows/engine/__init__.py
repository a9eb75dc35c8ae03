"""The engine: claims a workflow, runs its steps, decides what follows, and keeps its processes alive."""
