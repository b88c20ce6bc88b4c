"""How the project is run without assay: python src/train.py experiment=example."""

import hydra
import lightning as L
from omegaconf import DictConfig


@hydra.main(version_base="1.3", config_path="../configs", config_name="train.yaml")
def main(cfg: DictConfig) -> None:
    """Train and test."""
    L.seed_everything(cfg.seed, workers=True)
    module, datamodule = hydra.utils.instantiate(cfg.model), hydra.utils.instantiate(cfg.data)
    callbacks = [hydra.utils.instantiate(one) for one in cfg.callbacks.values()]
    trainer = hydra.utils.instantiate(cfg.trainer, callbacks=callbacks)
    trainer.fit(module, datamodule)
    trainer.test(module, datamodule, ckpt_path="best")


if __name__ == "__main__":
    main()
