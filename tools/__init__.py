"""Programs that make parts of the project."""
