"""Open lines to the processes of a root that can be asked; for programs with an event loop."""
