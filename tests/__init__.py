"""A package, so that a folder named `tests` that some library installs is never imported in its place."""
