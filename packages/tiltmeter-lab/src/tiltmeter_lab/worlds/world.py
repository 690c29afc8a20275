"""A simulated environment (world): prompts, possible answers, their proxy reward and their gold.

Every table has one row per prompt and one column per possible answer, so the policy, its expected gold and its KL to
the reference are sums, not estimates. Worlds can be loaded from the
user's file (`load_worlds`): an unseen family is the fair test of a published figure.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.errors import AttachError

Floats = NDArray[np.float64]

#: Update rules of the policy; the functions are in `update_rules.py`. `UPDATE_ALIASES` has other names for them.
UPDATES = ("tilt", "natural", "gradient", "grpo", "ppo")
UPDATE_ALIASES = {"exact": "tilt", "exact_tilt": "tilt", "npg": "natural", "pg": "gradient", "softmax_pg": "gradient"}


@dataclass(frozen=True, eq=False)
class World:
    """The definition of one run. `reference`, `proxy` and `gold` are prompts x answers; gold lies in [0, 1].

    >>> world = World("toy", reference=[[0.5, 0.5]], proxy=[[0.0, 1.0]], gold=[[1.0, 0.0]], steps=20)
    >>> world.reference.shape, world.update, world.rate.shape
    ((1, 2), 'tilt', (20,))
    """

    family: str
    reference: Floats  # rows sum to 1; 0 = this prompt has no such answer
    proxy: Floats  # the reward that is optimised
    gold: Floats  # true quality of an answer, and the chance that its label is 1
    update: str = "tilt"
    steps: int = 200
    groups: int = 64  # prompts per step
    group_size: int = 8
    rate: Any = (
        None  # how far a step goes, in standardised reward; one number or one per step; None: 4 in the whole run
    )
    leash: Any = 0.0  # weight of the KL to the reference in what is optimised; one number or one per step
    normalise: bool = True  # advantages divided by their group's standard deviation, as in GRPO
    noise: float = 0.0  # standard deviation of the reward's noise, in units of the proxy's own
    tokens: Floats | None = None  # length of each answer
    parts: Mapping[str, Floats] = field(default_factory=dict)  # components of the proxy, by name
    mix: Floats | None = None  # steps x prompts: how often each prompt is drawn; None = equally
    later: tuple[int, Floats] | None = None  # from this step on, another proxy
    labels: str = "coin"  # "coin": a label is good with chance gold; "value": the label is gold itself
    features: Floats | None = (
        None  # prompts x answers x parameters: what all prompts share; None: a table shares nothing
    )
    cliff: bool = False  # falls faster than labels can be bought: scored against its own floor

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("update", UPDATE_ALIASES.get(self.update, self.update))
        if np.ndim(self.reference[0]) == 0:  # one prompt
            for name in ("reference", "proxy", "gold", "tokens"):
                put(name, None if getattr(self, name) is None else [getattr(self, name)])
        sizes = [len(row) for row in self.reference]
        for name in ("reference", "proxy", "gold", "tokens"):
            if getattr(self, name) is not None:
                put(name, _table(getattr(self, name), sizes, f"{self.family}.{name}"))
        put("parts", {name: _table(part, sizes, name) for name, part in self.parts.items()})
        if self.later is not None:
            put("later", (int(self.later[0]), _table(self.later[1], sizes, "later")))
        if self.rate is None:
            put("rate", 4.0 / self.steps)
        for name in ("rate", "leash"):
            put(name, np.broadcast_to(np.asarray(getattr(self, name), np.float64), (self.steps,)))
        if self.mix is not None:
            mix = np.broadcast_to(np.asarray(self.mix, np.float64), (self.steps, len(sizes)))
            put("mix", mix / mix.sum(1, keepdims=True))
        _check(self)

    @property
    def normalised(self) -> bool:
        """Whether the optimiser divides advantages by their group's standard deviation."""
        return self.update == "natural" or (self.update == "grpo" and self.normalise)

    @property
    def scale(self) -> float:
        """The proxy's standard deviation inside a prompt under the reference, over prompts: the unit of `rate`."""
        mean = (self.reference * self.proxy).sum(1, keepdims=True)
        variance = (self.reference * (self.proxy - mean) ** 2).sum(1).mean()
        return float(np.sqrt(variance)) or 1.0


def _table(rows: Sequence[Any] | Floats, sizes: list[int], name: str) -> Floats:
    """Rows of different lengths padded with zeros: an answer with reference 0 is never given."""
    if [len(row) for row in rows] != sizes:
        raise AttachError(f"{name} does not have the shape of the reference probabilities")
    table = np.zeros((len(sizes), max(sizes, default=0)))
    for index, row in enumerate(rows):
        table[index, : sizes[index]] = row
    return table


def _check(world: World) -> None:
    def wrong(why: str) -> AttachError:
        return AttachError(f"world {world.family!r}: {why}")

    if world.update not in UPDATES:
        raise wrong(f"update {world.update!r} is none of {', '.join(UPDATES)}")
    if world.labels not in ("coin", "value"):
        raise wrong("labels is 'coin' or 'value'")
    if world.reference.size == 0 or np.any(world.reference < 0) or not np.allclose(world.reference.sum(1), 1.0):
        raise wrong("reference needs probabilities that sum to 1 for each prompt")
    if world.features is not None and (
        np.shape(world.features)[:2] != world.reference.shape or not np.isfinite(world.features).all()
    ):
        raise wrong("features are finite numbers, prompts x answers x parameters")
    if world.features is not None and np.any(world.leash):
        raise wrong("a policy with features has no leash")
    used = world.reference > 0
    if not np.isfinite(world.proxy[used]).all():
        raise wrong("proxy has values that are not finite")
    if not ((world.gold[used] >= 0) & (world.gold[used] <= 1)).all():
        raise wrong("gold lies in [0, 1]")
    if world.group_size < 2 or world.groups < 1 or world.steps < 20:
        raise wrong("a run needs at least 20 steps, one group and two answers per group")


Maker = Callable[[np.random.Generator], World]


def load_worlds(name: str) -> list[tuple[str, Maker]]:
    """Worlds defined outside the package: `path/to/file.py:NAME`, as (family, maker) pairs.

    NAME is a world, a function of a numpy Generator (or of nothing) that returns one, or a list or mapping of either. A
    world is a `World`, or a mapping or object with its fields: `reference`, `proxy` and `gold` are needed; `length` is
    another word for `steps` if it is a number, and for `tokens` if it is a table.
    """
    path, _, attribute = name.rpartition(":")
    source = Path(path).resolve()
    if not path.endswith(".py") or not attribute or not source.is_file():
        raise AttachError(f"{name!r} does not name worlds: write path/to/file.py:NAME, where the file exists")
    spec = importlib.util.spec_from_file_location(f"tiltmeter_worlds_{source.stem}", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    definition = getattr(module, attribute, None)
    if definition is None:
        raise AttachError(f"{name!r}: {source.name} defines no {attribute}")
    if _is_single(definition):
        definition = {_family_name(definition, attribute): definition}
    elif not isinstance(definition, Mapping):
        definition = {_family_name(each, f"{attribute}_{index}"): each for index, each in enumerate(definition)}
    return [(str(family), _world_maker(str(family), make)) for family, make in definition.items()]


def _is_single(definition: Any) -> bool:
    """Whether this is one world or one maker, not several."""
    if isinstance(definition, Mapping):
        return "reference" in definition
    return callable(definition) or hasattr(definition, "reference")


def _family_name(definition: Any, default: str) -> str:
    name = definition.get("family") if isinstance(definition, Mapping) else getattr(definition, "family", None)
    return str(name or getattr(definition, "__name__", default))


def _world_maker(family: str, make: Any) -> Maker:
    field_names = {item.name for item in fields(World)}

    def make_world(rng: np.random.Generator) -> World:
        world = make
        if callable(make):
            world = make(rng) if signature(make).parameters else make()
        if isinstance(world, World):
            return world
        facts = dict(world) if isinstance(world, Mapping) else dict(vars(world))
        if "length" in facts:
            length = facts.pop("length")
            facts["tokens" if isinstance(length, (list, tuple)) or np.ndim(length) else "steps"] = length
        if unknown := sorted(set(facts) - field_names):
            raise AttachError(
                f"world {family!r}: unknown fields {', '.join(unknown)}; known: {', '.join(sorted(field_names))}"
            )
        if lacking := sorted({"reference", "proxy", "gold"} - set(facts)):
            raise AttachError(f"world {family!r} lacks {', '.join(lacking)}")
        return World(**{**facts, "family": family})

    return make_world
