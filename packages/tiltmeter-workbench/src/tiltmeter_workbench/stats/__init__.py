"""Statistics of the workbench as pure functions on arrays."""
