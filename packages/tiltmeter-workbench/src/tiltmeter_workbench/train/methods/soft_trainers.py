"""DPO and GRPO trainers for soft preference learning: separate weights for entropy and cross-entropy in the KL.

KL(π || ref) = CE(π, ref) - H(π), so that TRL's E[r] - β KL is the case w_CE = w_H = β of

    E[r] - w_CE CE(π, ref) + w_H H(π) = E[r] - w_CE KL(π || ref) - (w_CE - w_H) H(π).

Its derivative with respect to π(y), with a multiplier for the sum of π, is r + w_CE ln ref - w_H (ln π + 1) - c = 0:

    w_H ln π - w_CE ln ref = r - c', that is, π ∝ ref^(w_CE / w_H) exp(r / w_H).

The left side is what a preference pair compares, since c' cancels: DPO's sigmoid loss on it is the likelihood of the
pair under Bradley-Terry. IPO is the same with r = P(y beats another), regressed on instead of fitted. GRPO has TRL's
own KL term with β = w_CE, and the entropy beside it. In both, w_CE is TRL's `beta` and w_H is `entropy_weight`.

Slocum, Parker-Sartori and Hadfield-Menell, "Diverse Preference Learning for Capabilities and Alignment", ICLR 2025
(arXiv 2511.08594), whose α is w_H and whose β is w_CE.
"""

from __future__ import annotations

import math
from typing import Any

from trl import DPOTrainer, GRPOTrainer

from tiltmeter.errors import AttachError

SPLIT_LOSSES = ("sigmoid", "ipo")  # losses of DPOTrainer for which the split is derived above
#: How GRPOTrainer divides the sum over tokens of policy loss and KL: the loss types that `_entropy_scale` supports.
BY_TOKENS = ("dapo", "cispo", "vespo", "bnpo", "dr_grpo", "luspo")


class SoftDPOTrainer(DPOTrainer):  # type: ignore[misc]
    """TRL's DPO whose implicit reward is w_H ln π - w_CE ln ref; `entropy_weight=None` or `beta` is TRL's own.

    TRL computes β (ln π - ln ref). With w_H in place of β and the reference's log-probabilities times w_CE / w_H it
    computes the wanted reward, and the logged `rewards/*` are that reward too.
    """

    precompute_ref_logps: bool

    def __init__(self, *args: Any, entropy_weight: float | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        weight = _check_weight(entropy_weight, self.args.beta)
        if weight != self.args.beta:
            _refuse_pairs(self.args)
        self.reference_exponent = self.args.beta / weight if weight else 1.0
        self.beta = weight

    def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool) -> Any:
        names = ("ref_chosen_logps", "ref_rejected_logps")
        precomputed = self.precompute_ref_logps
        if precomputed:
            reference = [inputs[name] for name in names]
        else:
            reference_model = (
                self.model if self.ref_model is None else self.ref_model
            )  # adapters are switched off by TRL
            reference = self.compute_ref_log_probs(reference_model, inputs)
        scaled = {name: self.reference_exponent * value for name, value in zip(names, reference, strict=True)}
        self.precompute_ref_logps = True  # for this call: they are in the batch
        try:
            return super()._compute_loss(model, {**inputs, **scaled}, return_outputs)
        finally:
            self.precompute_ref_logps = precomputed


class SoftGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPO with TRL's entropy bonus of w_H - w_CE; `entropy_weight=None` or `beta` is TRL's own.

    TRL divides the KL by `loss_type`, and the entropy always by the tokens of the micro-batch. Here the entropy is
    rescaled to the KL's normalisation, so that both weights are in the same unit for every supported loss type.
    """

    def __init__(self, *args: Any, entropy_weight: float | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        weight = _check_weight(entropy_weight, self.args.beta)
        self.splits = entropy_weight is not None
        if not self.splits:
            return
        if weight != self.args.beta:
            _refuse_rollouts(self.args)
        bonus = weight - self.args.beta
        if self.args.use_adaptive_entropy:
            raise AttachError("entropy_weight fixes the entropy's weight: set use_adaptive_entropy=False")
        if self.args.entropy_coef != 0.0 and not math.isclose(self.args.entropy_coef, bonus):
            raise AttachError(
                f"entropy_weight {weight:g} and beta {self.args.beta:g} make an entropy_coef of {bonus:g}, and it is "
                f"set to {self.args.entropy_coef:g}: leave entropy_coef out"
            )
        self.entropy_coef = bonus
        self._entropy_bonus_enabled = bonus != 0.0

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        coefficient = self.entropy_coef
        if self.splits and coefficient != 0.0:
            self.entropy_coef = coefficient * self._entropy_scale(inputs)
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self.entropy_coef = coefficient

    def _entropy_scale(self, inputs: dict[str, Any]) -> float:
        """Factor from a mean over a micro-batch's tokens to TRL's normalisation of the KL of these tokens."""
        mask = inputs["completion_mask"]
        rows = int(mask.size(0))
        tokens = float((mask * inputs["tool_mask"] if "tool_mask" in inputs else mask).sum().clamp(min=1))
        if self.loss_type == "bnpo":
            return 1.0
        if self.loss_type == "dr_grpo":
            return tokens / (rows * int(self.max_completion_length))
        if self.loss_type == "luspo":
            return tokens / rows
        # dapo, cispo, vespo: tokens of the whole generation batch, of which this process sees a share in each step
        share = float(inputs["num_items_in_batch"].clamp(min=1.0)) / int(self.accelerator.num_processes)
        return tokens / (share / int(self.args.steps_per_generation) if self.model.training else share)


def _check_weight(weight: float | None, beta: float) -> float:
    if weight is None:
        return float(beta)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not math.isfinite(weight) or weight <= 0.0:
        raise AttachError(f"entropy_weight must be a number above 0, not {weight!r}; beta itself is plain TRL")
    if beta < 0.0:
        raise AttachError(f"beta is the weight of the cross-entropy and must be 0 or more, not {beta:g}")
    return float(weight)


def _refuse_pairs(args: Any) -> None:
    """Refuse settings that change the implicit reward or its loss: the split is not derived for them."""
    unsupported = [name for name in args.loss_type if name not in SPLIT_LOSSES]
    if unsupported or len(args.loss_type) > 1:
        raise AttachError(
            f"entropy_weight is for one loss_type of {', '.join(SPLIT_LOSSES)}, not {', '.join(args.loss_type)}; with "
            "entropy_weight equal to beta, or without it, every loss of TRL is taken"
        )
    plain = {"f_divergence_type": "reverse_kl", "ld_alpha": None, "use_weighting": False}
    for name, value in plain.items():
        if getattr(args, name) != value:
            raise AttachError(f"entropy_weight other than beta needs {name}={value!r}, not {getattr(args, name)!r}")


def _refuse_rollouts(args: Any) -> None:
    """Refuse settings under which KL and entropy are over different tokens, or cannot be rescaled to one unit."""
    if args.loss_type not in BY_TOKENS:
        raise AttachError(
            f"entropy_weight other than beta needs a loss_type of {', '.join(BY_TOKENS)}; in {args.loss_type} the KL "
            "is averaged over each completion first and TRL's entropy is not"
        )
    if args.top_entropy_quantile < 1.0:
        raise AttachError("entropy_weight other than beta needs top_entropy_quantile=1.0: the KL is of all tokens")
