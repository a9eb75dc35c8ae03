"""An app whose migrations change the engine's tables, as those of a next release would."""
