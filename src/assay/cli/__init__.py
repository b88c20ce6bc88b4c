try:
    import assay.config  # noqa: F401 - says which versions of Hydra and OmegaConf go together
except ImportError as error:
    raise SystemExit(f"error: {error}") from error
