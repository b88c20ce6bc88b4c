"""Imports every module of the installed package: none may need an extra before it is used."""

import importlib
import pkgutil

import assay

modules = [module.name for module in pkgutil.walk_packages(assay.__path__, "assay.")]
for name in modules:
    if name != "assay.__main__":
        importlib.import_module(name)
print(f"{len(modules)} modules of {assay.__file__} import")
