"""`tiltmeter gold`: draft a check, try it, and compare it with what a person says."""
