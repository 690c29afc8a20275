"""`python -m tiltmeter` is the `tiltmeter` command: the trainer starts its monitor this way, on its own interpreter."""

from tiltmeter.cli import main

if __name__ == "__main__":
    main()
