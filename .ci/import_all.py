"""Imports every module of the installed package: none may need an extra before it is used."""

import importlib
import pkgutil

import assay
from assay.rooms import ROOMS

packages = [importlib.import_module(name) for name in ("assay", *ROOMS)]
modules = [
    module.name
    for package in packages
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]
for name in modules:
    if name != "assay.__main__":
        importlib.import_module(name)
print(f"{len(modules)} modules of {assay.__file__} import")
