"""The entry points stay small: few arguments, few verbs."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields

import pytest

import tiltmeter
from tiltmeter.adapters import arguments
from tiltmeter.cli.verb_table import CORE

#: Lower it with every verb that is merged or moved into a package; 24 is the aim.
MOST_VERBS = 31
OBJECTS = (tiltmeter.Act, tiltmeter.Anchors, tiltmeter.Gold, tiltmeter.Launch, tiltmeter.Options, tiltmeter.Traps)


def test_attach_takes_at_most_nine_arguments_and_open_run_ten() -> None:
    pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
    attach, open_run = (inspect.signature(one).parameters for one in (tiltmeter.attach, tiltmeter.open_run))
    assert len(attach) <= 9 and len(open_run) <= 10
    assert all(name in attach for name in ("gold", "slices", "options")), "the same words in both"
    assert all(name in open_run for name in ("gold", "slices", "options"))


def test_the_core_has_plain_verbs_and_they_only_get_fewer() -> None:
    assert not CORE.nouns and not any(" " in spelling for spelling in CORE.verbs)
    assert len(CORE.verbs) <= MOST_VERBS


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_field_has_a_line_and_cannot_be_changed(kind: type) -> None:
    said = (kind.__doc__ or "").split("Args:")[1]
    for field in fields(kind):
        assert f"\n        {field.name}: " in said, f"{kind.__name__} does not say what {field.name} is"
    assert vars(kind)["__dataclass_params__"].frozen


@pytest.mark.parametrize("function", ["attach", "open_run"])
def test_every_argument_has_a_line(function: str) -> None:
    if function == "attach":
        pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
    one = getattr(tiltmeter, function)
    for name in inspect.signature(one).parameters:
        assert f"\n        {name}: " in (one.__doc__ or ""), f"{function} does not say what {name} is"


def test_the_objects_are_light() -> None:
    heavy = "{'torch', 'pyarrow', 'transformers', 'trl', 'numba'}"
    code = f"import sys, tiltmeter; tiltmeter.Act(), tiltmeter.Gold(); print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("read", "value", "why"),
    [
        (arguments.read_gold, {"shares": 0.1}, "gold has no 'shares'; did you mean share?"),
        (arguments.read_act, {"targetkl": 6.0}, "did you mean target_kl?"),
        (arguments.read_act, "acting", 'choose "observe", "advise" or "act"'),
        (arguments.read_traps, {"share": 0.1}, "source"),
        (arguments.read_anchors, {"prompt": 32}, "did you mean prompts?"),
        (arguments.read_options, "strict", "tiltmeter.Options"),
        (arguments.read_launch, {"rnak": 0}, "did you mean rank?"),
    ],
)
def test_what_an_object_does_not_have_is_refused_with_the_nearest_name(read: object, value: object, why: str) -> None:
    with pytest.raises(tiltmeter.AttachError, match=why.replace("?", r"\?")):
        read(value)  # type: ignore[operator]
