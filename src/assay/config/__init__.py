import omegaconf

try:
    import hydra
except ImportError:  # Hydra 1.4 asks OmegaConf 2.3 for what it lacks
    _FITS = False
else:
    _FITS = (getattr(hydra, "__version__", "0") >= "1.4") == (omegaconf.__version__ >= "2.4")
if not _FITS:
    raise ImportError(
        f"OmegaConf {omegaconf.__version__} does not go with this Hydra: 1.3 needs OmegaConf 2.3, "
        "and 1.4 needs 2.4; pip install -U hydra-core installs both"
    )
