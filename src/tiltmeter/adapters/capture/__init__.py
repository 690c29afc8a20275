"""`tiltmeter.capture(reward)`: any reward function of any trainer, recorded."""
