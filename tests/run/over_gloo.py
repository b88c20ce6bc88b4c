"""`assay` with ranks that meet over gloo on GPUs, too: NCCL refuses two ranks on one card."""

from torch.distributed import Backend

from assay.cli import app


def main() -> None:
    """Run the command."""
    Backend.default_device_backend_map["cuda"] = "gloo"
    app.main()
