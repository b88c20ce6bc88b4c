"""What this machine has, and what `device=auto` makes of it."""

from __future__ import annotations

import platform

import psutil
import torch

from assay.record.provenance import cpu_model, packages, usable_cores
from assay.torch_internals import multiplies_bfloat16

_PACKAGES = (
    "assay",
    "torch",
    "torchvision",
    "lightning",
    "torchmetrics",
    "hydra-core",
    "omegaconf",
    "numpy",
    "scikit-learn",
)


def machine() -> dict[str, dict[str, str]]:
    """Sections of name and value, ready to print."""
    memory = psutil.virtual_memory()
    installed = packages()
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: installed.get(name, "not installed") for name in _PACKAGES},
        },
        "cpu": {
            "model": cpu_model(),
            "cores": f"{psutil.cpu_count(logical=False)} physical, {usable_cores()} usable",
            "threads": f"{torch.get_num_threads()} (torch)",
            "memory": f"{memory.total / 2**30:.1f} GiB, {memory.available / 2**30:.1f} GiB free",
            "bf16": "supported by the instruction set"
            if multiplies_bfloat16()
            else "emulated, slow",
        },
        "gpu": _gpus(),
        "device=auto": auto_choice(),
    }


def _gpus() -> dict[str, str]:
    if torch.cuda.is_available():
        gpus = {}
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            free, total = (count / 2**30 for count in torch.cuda.mem_get_info(index))
            gpus[f"cuda:{index}"] = (
                f"{properties.name}, {total:.0f} GiB, {free:.0f} GiB free, "
                f"compute capability {properties.major}.{properties.minor}"
            )
        bf16 = "emulated, slow"
        if torch.cuda.is_bf16_supported(including_emulation=False):
            bf16 = "supported"
        return {
            **gpus,
            "CUDA": str(torch.version.cuda),
            "cuDNN": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]  # torch left it untyped
            "bf16": bf16,
        }
    if torch.backends.mps.is_available():
        return {"mps": "Apple GPU through Metal", "bf16": "see precision=bf16"}
    if torch.version.cuda:
        return {
            "none": f"torch is built for CUDA {torch.version.cuda}, but finds no GPU or driver"
        }
    return {"none": "torch is built without CUDA"}


def auto_choice() -> dict[str, str]:
    """The device that `device=auto` takes here, and the reason."""
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        more = ""
        if count > 1:
            more = f"; {count - 1} more stay idle: device=ddp uses all"
        return {
            "chooses": f"cuda:0 ({torch.cuda.get_device_name(0)})",
            "why": f"torch sees {count} CUDA GPU(s){more}",
        }
    if torch.backends.mps.is_available():
        return {"chooses": "mps", "why": "no CUDA GPU, but Apple's Metal is available"}
    return {"chooses": "cpu", "why": "torch sees no CUDA GPU and no Apple GPU"}
