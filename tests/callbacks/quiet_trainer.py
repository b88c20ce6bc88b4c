from typing import Any

import lightning as L


def quiet_trainer(*callbacks: L.Callback, **options: Any) -> L.Trainer:
    """On the CPU, with these callbacks alone."""
    quiet: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    quiet |= {"enable_progress_bar": False, "enable_model_summary": False}
    return L.Trainer(callbacks=list(callbacks), **(quiet | options))
