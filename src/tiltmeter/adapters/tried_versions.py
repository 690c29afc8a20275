"""Versions of other packages that were tried, by their first two numbers. Nothing of them is imported here."""

from __future__ import annotations

#: TRL: on these, wrapping its trainer's methods was tested; on others only the reward functions are wrapped.
TRL = ("1.14", "1.16")
#: By package: the versions on which everything that this package does there was run, as far as a CPU allows.
PACKAGES = {"trl": TRL, "verl": ("0.9",), "openrlhf": ("0.11",), "verifiers": ("0.4",), "openenv": ("0.10",)}


def first_two(version: str) -> str:
    """
    >>> first_two("1.16.0"), first_two("0.9.1.dev3"), first_two("2")
    ('1.16', '0.9', '2')
    """
    return ".".join(version.split(".")[:2])


def version_note(package: str, version: str) -> str:
    """What is to be expected of a version that was not tried; empty for one that was, and for other packages.

    >>> version_note("trl", "1.16.0"), version_note("trl", "1.99.0")
    ('', 'trl 1.99.0 was not tried, but 1.14 and 1.16: reward functions are recorded, log-probabilities may not be')
    """
    tried = PACKAGES.get(package, ())
    if not tried or first_two(version) in tried:
        return ""
    less = ": reward functions are recorded, log-probabilities may not be" if package == "trl" else ""
    return f"{package} {version} was not tried, but {' and '.join(tried)}{less}"
