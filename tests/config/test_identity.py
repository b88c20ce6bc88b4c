"""What does not make a job another one."""

from __future__ import annotations

from omegaconf import OmegaConf

from assay.config.serialize import NOT_IDENTITY, REPETITIONS, config_fingerprint, fingerprint


def test_each_key_leaves_the_fingerprint_as_it_is() -> None:
    job = OmegaConf.create({"lr": 0.1, "seed": 0})
    for key in NOT_IDENTITY:
        assert fingerprint(OmegaConf.create({**job, key: "other"})) == fingerprint(job), key
    for key in REPETITIONS:
        other = OmegaConf.create({**job, key: 7})
        assert fingerprint(other) != fingerprint(job), key
        assert config_fingerprint(other) == config_fingerprint(job), key
    assert config_fingerprint(OmegaConf.create({"lr": 0.2, "seed": 0})) != config_fingerprint(job)
