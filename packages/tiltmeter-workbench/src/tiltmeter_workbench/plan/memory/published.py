"""A reconstruction of published memory figures for a 7B model: 124 GB for PPO, 64 for DPO and 82 for GRPO."""

from __future__ import annotations

from collections.abc import Mapping

#: Bytes of one parameter: bf16 weights, and Adam's two states in bf16. There are no gradients in these figures.
WEIGHTS, ADAM = 2.0, 4.0
#: GB at 7B that the published totals leave for everything else. 8 is common to all three; 4 more are in the two that
#: generate. Neither is itemised where the figures come from.
ACTIVATIONS, GENERATION, AT = 8.0, 4.0, 7.0

#: Models held and models trained, by method.
MODELS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ppo": (("policy", "reference", "reward model", "value model"), ("policy", "value model")),
    "dpo": (("policy", "reference"), ("policy",)),
    "grpo": (("policy", "reference", "reward model"), ("policy",)),
}
NOTE = (
    "The published totals come without an itemisation; this one is our reconstruction. One set of constants gives all "
    "three: 2 bytes a parameter for each model held, 4 for Adam in bf16 of each model trained, 8 GB of activations, "
    "and 4 GB more where the policy generates. Gradients are left out, so a real run needs more: leave --published off."
)


def published(parameters: float) -> dict[str, dict[str, float]]:
    """Items in GB by method, for a model of a nominal size; what is not weights is scaled with the size from 7B.

    >>> {method: sum(items.values()) for method, items in published(7e9).items()}
    {'ppo': 124.0, 'dpo': 64.0, 'grpo': 82.0}
    """
    billions = parameters / 1e9
    tables = {}
    for method, (models, trained) in MODELS.items():
        items = dict.fromkeys(models, WEIGHTS * billions)
        items |= {f"Adam of the {model}": ADAM * billions for model in trained}
        items["activations"] = ACTIVATIONS * billions / AT
        if method != "dpo":
            items["generation"] = GENERATION * billions / AT
        tables[method] = items
    return tables
