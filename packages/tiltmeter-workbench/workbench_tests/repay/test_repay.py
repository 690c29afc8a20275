"""Models in between: their weights, which of them is chosen and with what right, and the verb on real models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command_line import tiltmeter
from tests.sizes import size

from tiltmeter.errors import AttachError
from tiltmeter.stats.intervals import upper_bound
from tiltmeter_workbench.compare.sampling import fingerprint
from tiltmeter_workbench.repay.front import ALPHA, Front, FrontPoint
from tiltmeter_workbench.repay.interpolate import interpolate

torch = pytest.importorskip("torch", reason="needs torch: pip install 'tiltmeter[compare]'")


def front(golds: list[float], capabilities: list[float], rng: np.random.Generator, n: int = 200) -> Front:
    """Prompts and items of unlike difficulty, and points that solve such shares of them."""
    hard = rng.uniform(size=(2, n))
    noise = rng.normal(0.0, 0.15, (2, len(golds), n))
    points = [
        FrontPoint(str(at), *((value > hard[kind] + noise[kind, at]).astype(float) for kind, value in enumerate(pair)))
        for at, pair in enumerate(zip(golds, capabilities, strict=True))
    ]
    return Front(points, 0.05)


def test_a_point_between_that_keeps_both_is_chosen() -> None:
    told = front([0.4, 0.6, 0.7, 0.72], [0.7, 0.7, 0.69, 0.4], np.random.default_rng(1), 3_000)
    assert (told.state, told.exit_code, told.chosen) == ("kept", 0, 2)
    assert told.regained(2).low > 0.85 and told.paid(2).high < 0.2
    assert 0 not in told.undominated or told.points[0].mean_capability == max(
        point.mean_capability for point in told.points
    )


@pytest.mark.parametrize(
    ("golds", "capabilities", "state", "code"),
    [
        ([0.4, 0.5, 0.7], [0.7, 0.7, 0.7], "nothing lost", 0),
        ([0.4, 0.6, 0.7], [0.7, 0.5, 0.3], "lost", 1),
        ([0.4, 0.4, 0.4], [0.7, 0.5, 0.3], "cannot tell", 2),  # nothing was gained
        ([0.4, 0.6, 0.7], [0.7, 0.65, 0.3], "cannot tell", 2),  # just at the margin
    ],
)
def test_every_other_outcome_has_its_state(
    golds: list[float], capabilities: list[float], state: str, code: int
) -> None:
    told = front(golds, capabilities, np.random.default_rng(2), 3_000)
    assert (told.state, told.exit_code) == (state, code)


def test_few_items_and_missing_gold_are_never_calm() -> None:
    assert front([0.4, 0.9], [0.7, 0.7], np.random.default_rng(3), 6).state == "cannot tell"
    whole = front([0.4, 0.9], [0.7, 0.7], np.random.default_rng(3), 400)
    lacking = [point._replace(gold=np.full(400, np.nan)) for point in whole.points]
    assert Front(lacking, 0.05).state == "cannot tell"


def test_a_point_that_lost_more_than_the_margin_is_hardly_ever_chosen() -> None:
    """Each of five points has lost a little more than may be lost, and the best looking one would be picked."""
    rng, runs = np.random.default_rng(4), size(300, 4_000)
    wrong = sum(front([0.4, *[0.7] * 5], [0.7, *[0.645] * 5], rng).chosen > 0 for _ in range(runs))
    assert wrong / runs <= ALPHA and upper_bound(wrong, runs) <= 0.08


def test_the_interval_of_what_is_regained_holds_the_truth() -> None:
    rng, runs = np.random.default_rng(5), size(100, 1_000)
    inside = 0
    for _ in range(runs):
        share = front([0.3, 0.6, 0.7], [0.8, 0.65, 0.4], rng, 400).regained(1)
        inside += share.low <= 0.625 <= share.high  # (0.65 - 0.4) / (0.8 - 0.4), up to the noise of the thresholds
    assert inside / runs > 0.85


@pytest.fixture(scope="module")
def models(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as `base`, a copy that was moved as `tuned`, and an adapter of it as `adapter`."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("repay")
    shutil.copytree(tiny_model, folder / "base")
    shutil.copytree(tiny_model, folder / "tuned")
    model = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.05 * torch.randn_like(weight)
    model.save_pretrained(folder / "tuned", max_shard_size="20KB")
    (folder / "tuned" / "model.safetensors").unlink()  # the copy's; the moved ones are in several files
    plain = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    adapter = get_peft_model(plain, LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, weight in adapter.named_parameters():
            if "lora_" in name:
                weight.copy_(0.3 * torch.randn_like(weight))
    adapter.save_pretrained(folder / "adapter")
    return folder


def weights(folder: Path) -> dict[str, Any]:
    from transformers import AutoModelForCausalLM

    return dict(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict())


def test_weights_lie_between_and_a_second_making_is_the_same_to_a_cache(models: Path, tmp_path: Path) -> None:
    between = interpolate(models / "base", models / "tuned", 0.25, tmp_path / "between")
    start, own, end = weights(models / "base"), weights(between), weights(models / "tuned")
    for name, value in own.items():
        assert torch.allclose(value, 0.75 * start[name] + 0.25 * end[name], atol=1e-6)
    before = fingerprint(between)
    assert fingerprint(interpolate(models / "base", models / "tuned", 0.25, between)) == before
    assert fingerprint(interpolate(models / "base", models / "tuned", 0.5, between)) != before
    assert [path.name for path in tmp_path.iterdir()] == ["between"]


def test_a_scaled_adapter_is_the_model_in_between(models: Path, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    def merged(adapter: Path) -> dict[str, Any]:
        base = AutoModelForCausalLM.from_pretrained(models / "base", dtype=torch.float32)
        return dict(PeftModel.from_pretrained(base, adapter).merge_and_unload().state_dict())

    between = interpolate(models / "base", models / "adapter", 0.4, tmp_path / "between")
    start, own, end = weights(models / "base"), merged(between), merged(models / "adapter")
    moved = [name for name in own if not torch.equal(start[name], end[name])]
    assert moved
    for name, value in own.items():
        assert torch.allclose(value, 0.6 * start[name] + 0.4 * end[name], atol=1e-6)


def test_what_cannot_be_mixed_is_refused_and_leaves_nothing(models: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    shutil.copytree(models / "tuned", hostile)
    index = hostile / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "../../secret.safetensors"}}))
    dora = tmp_path / "dora"
    shutil.copytree(models / "adapter", dora)
    config = json.loads((dora / "adapter_config.json").read_text())
    (dora / "adapter_config.json").write_text(json.dumps({**config, "use_dora": True}))
    pickled = tmp_path / "pickled"
    shutil.copytree(models / "base", pickled)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    for folder, why in ((hostile, "outside of its folder"), (dora, "merge it"), (pickled, "run no code")):
        with pytest.raises(AttachError, match=why):
            interpolate(models / "base", folder, 0.5, tmp_path / "out")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_the_verb_measures_every_point_and_goes_on_where_it_was(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install 'tiltmeter[compare]'")
    (tmp_path / "checks.py").write_text("def score(prompt, completion):\n    return min(len(completion), 10) / 10\n")
    rows = [{"prompt": f"what is {at} plus 2"} for at in range(12)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [
        *("model", "repay", models / "base", models / "tuned", "--gold", f"{tmp_path}/checks.py:score", "--share", 0.5),
        *("--prompts", tmp_path / "prompts.jsonl", "--work", tmp_path / "kept", "--tokens", 5, "--answers", 2),
        *("--task", "arithmetic", "--most", 12),
    ]
    done = tiltmeter(*map(str, [*command, "--json", "--out", tmp_path / "repaid"]))
    told = json.loads(done.stdout)
    assert [point["name"] for point in told["points"]] == ["base", "50 % of the change", "tuned"]
    assert told["points"][0]["kl"] == 0.0 < told["points"][1]["kl"] < told["points"][2]["kl"]
    assert done.returncode == told["exit_code"] and (told["state"] == "kept") == (tmp_path / "repaid").exists()
    assert not list((tmp_path / "kept" / "models").iterdir())

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was sampled already")

    monkeypatch.setattr("tiltmeter_workbench.common.local_model.LocalModel.answers", never)
    again = tiltmeter(*map(str, [*command, "--html", tmp_path / "repay.html"]))
    assert again.returncode == done.returncode and "50 % of the change" in again.stdout
    assert (tmp_path / "repay.html").read_text("utf-8").startswith("<!doctype html>")


def test_people_grade_the_answers_of_every_point_and_the_verb_goes_on_with_what_they_saved(
    models: Path, tmp_path: Path
) -> None:
    pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install 'tiltmeter[compare]'")
    rows = [{"prompt": f"what is {at} plus 2"} for at in range(12)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [
        *("model", "repay", models / "base", models / "tuned", "--gold", "people", "--share", 0.5, "--answers", 2),
        *("--prompts", tmp_path / "prompts.jsonl", "--work", tmp_path / "kept", "--tokens", 5),
        *("--task", "arithmetic", "--most", 12),
    ]
    first = tiltmeter(*map(str, command))
    page = (tmp_path / "kept" / "people.html").read_text("utf-8")
    shown = json.loads(page.partition('id="items">')[2].partition("</script>")[0])
    assert first.returncode == 2 and f"{len(shown)} wait for people" in first.stderr and not first.stdout
    lines = [json.dumps({"key": one["key"], "person": "1" if at % 2 else "0.25"}) for at, one in enumerate(shown)]
    (tmp_path / "kept" / "labels.jsonl").write_text("\n".join(lines))
    told = json.loads(tiltmeter(*map(str, [*command, "--json"])).stdout)
    assert "a person who graded each answer" in json.dumps(told)
    assert 0.25 < told["points"][0]["gold"] < 1.0
