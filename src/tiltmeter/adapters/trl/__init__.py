"""TRL: `tiltmeter.attach(trainer)`, and everything that knows how its trainers work."""
