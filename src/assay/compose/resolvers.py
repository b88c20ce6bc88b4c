"""The resolvers of assay's own YAML. Importing this module registers nothing; `register()` does."""

from __future__ import annotations

import secrets

from omegaconf import OmegaConf


def register() -> None:
    """Register `${short_id:}`: six random hexadecimal digits, the same wherever one config uses it."""
    OmegaConf.register_new_resolver("short_id", lambda: secrets.token_hex(3), use_cache=True, replace=True)
