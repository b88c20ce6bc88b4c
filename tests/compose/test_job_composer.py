"""Jobs of a sweep equal jobs composed one by one."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf, open_dict, read_write

from assay.compose.compose import compose, loader, trust_for
from assay.compose.job_composer import JobComposer, compose_job
from assay.compose.recipe import settle_recipe
from assay.config.serialize import written
from assay.errors import ConfigError
from assay.sweep.session import plan

_CLOCK = re.compile(r"\d{2}-\d{2}-\d{2}-[0-9a-f]{6}|[0-9a-f]{6}$")


def plain(config: Any) -> str:
    """Everything in a job, without the time of day, the random id and its place in the sweep."""
    config = OmegaConf.masked_copy(config, list(config))
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.sweep.dir, config.hydra.job.num, config.hydra.job.id = "x", 0, "0"
    text = OmegaConf.to_yaml(config)
    return "\n".join(_CLOCK.sub("", line) for line in text.splitlines() if "run_dir" not in line)


@pytest.mark.always("typed0", "typed2")
@pytest.mark.parametrize(
    "typed",
    [
        ["optimizer=sgd,adam", "seed=1,2", "optimizer.lr=0.5"],
        ["data=wine,iris", "model.hidden=[8],[16,16]", "+model.note=1,2", "hydra.launcher.timeout_min=3"],
        ["callbacks=[default,ema]", "callbacks.ema.decay=0.9,0.99", "~scheduler", "name=x"],
        ["trainer.max_epochs=1,2", "device=cpu", "+trainer.fast_dev_run=true", "~callbacks.lr_monitor"],
        ["tags=[a],[b]", "hydra.sweep.dir=outputs/x", "seed=1,2"],
    ],
)
def test_a_job_is_what_it_is_alone(typed: list[str]) -> None:
    jobs = plan(typed)
    assert len(jobs) > 1
    for job in jobs:
        alone = compose([*map(str, job.hydra.overrides.hydra), *map(str, job.hydra.overrides.task)])
        assert plain(job) == plain(alone)


def test_every_job_has_an_id_of_its_own() -> None:
    jobs = plan(["seed=1,2,3"])
    assert len({str(job.run_dir) for job in jobs}) == 3
    assert [job.seed for job in jobs] == [1, 2, 3]


def test_the_job_with_the_mistake_is_named() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.lrr.*did you mean"):
        plan(["seed=1,2", "optimizer.lrr=0.1,0.2"])


def test_what_waits_for_the_data_can_be_typed_inside_of_a_list(tmp_path: Path) -> None:
    layers = "[{_target_:'torch.nn.Linear',in_features:'${spec.num_features}',out_features:3}]"
    with loader() as hydra:
        composer = JobComposer(hydra, trust_for(hydra, []), tmp_path)
        job = composer.job(["data=iris", "model=linear", f"model._args_={layers}"], 0)
    assert job.config["model"]["_args_"][0]["in_features"] == "${spec.num_features}"


def test_jobs_know_what_their_experiment_has_set(tmp_path: Path) -> None:
    with loader() as hydra:
        composer = JobComposer(hydra, trust_for(hydra, []), tmp_path)
        jobs = [composer.job(["experiment=digits_longtail", f"loss.scale={scale}"], 0) for scale in (1, 2)]
        other = composer.job(["optimizer=sgd", "loss.label_smoothing=0.1"], 1)
    for job in jobs:
        assert {job.set_by[key] for key in ("loss", "trainer.max_epochs")} == {"experiment=digits_longtail"}
    assert other.set_by == {}
    assert compose_job(["experiment=digits_longtail", "loss.scale=1"]).set_by == jobs[0].set_by


VALUES = {
    "accelerator": ("cpu", "auto"),
    "devices": (1, 2),
    "precision": ("32-true", "64-true"),
    "benchmark": (True, False),
    "max_epochs": (3, 30),
}
OWN_OPTIONS = st.fixed_dictionaries(
    dict.fromkeys(
        ("trainer", "device", "precision"),
        st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in VALUES.items()}),
    )
)


@settings(max_examples=30)
@given(OWN_OPTIONS)
def test_a_job_has_what_the_options_of_the_user_set_or_is_refused(
    options: dict[str, dict[str, Any]],
) -> None:
    """`trainer`, `device` and `precision` are put into one node, where Hydra lets the last one win."""
    with tempfile.TemporaryDirectory() as folder:
        for group, values in options.items():
            (path := Path(folder, group, "mine.yaml")).parent.mkdir()
            head = {"defaults": ["default"]} if group == "trainer" else {}
            path.write_text(f"# @package trainer\n{json.dumps(head | values)}", encoding="utf-8")
        typed = [f"{group}=mine" for group, values in options.items() if values]
        merged = compose(typed, Path(folder)).trainer
        lost = {key for values in options.values() for key, one in values.items() if merged[key] != one}
        if not lost:
            plain = OmegaConf.create({"trainer": merged})
            settle_recipe(plain)
            assert compose_job(typed, Path(folder)).config["trainer"] == written(plain)["trainer"]
            return
        with pytest.raises(ConfigError) as caught:
            compose_job(typed, Path(folder))
        assert caught.value.key.removeprefix("trainer.") in lost
        # Said by the person who types, it is no longer a question.
        said = [f"trainer.{key}={merged[key]}" for key in lost]
        assert compose_job([*typed, *said], Path(folder)).config["trainer"][lost.pop()] is not None
        with loader(Path(folder)) as hydra:
            composer = JobComposer(hydra, trust_for(hydra, typed), Path("x"))
            composer.job([*typed, *said], 0)
