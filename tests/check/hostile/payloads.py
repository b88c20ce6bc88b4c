"""What hostile nodes call. Each writes the file MARKER in the current directory if it is ever called."""

from __future__ import annotations

from typing import Any

Node = dict[str, Any]

MARKER = "MARKER"
TOUCH = f"touch {MARKER}"
CODE = f"open('{MARKER}', 'w').close()"
IMPORT_MODULE = "import_evil"
"""A module of the case whose import writes the marker."""


def call(target: str, *args: Any, **kwargs: Any) -> Node:
    return {"_target_": target, **({"_args_": list(args)} if args else {}), **kwargs}


def partial(target: str, *args: Any, **kwargs: Any) -> Node:
    return {**call(target, *args, **kwargs), "_partial_": True}


_OS_ALIASES = (
    *(
        "os",
        "posixpath.os",
        "torch.os",
        "torch.serialization.os",
        "torch.hub.os",
        "torch.utils.data.dataloader.os",
    ),
    *("torch.nn.parallel.distributed.os", "torchmetrics.os", "torchmetrics.utilities.checks.os"),
    *("torchvision.datasets.utils.os", "torchvision.datasets.folder.os", "torchvision.datasets.mnist.os"),
    *("lightning.pytorch.callbacks.model_checkpoint.os", "lightning.pytorch.loggers.csv_logs.os"),
    *("lightning.pytorch.profilers.profiler.os", "assay.run.ranks.os"),
    *(
        "assay.logger.run_csv.os",
        "assay.files.atomic.os",
        "numpy.lib._datasource.os",
        "pathlib.os",
        "shutil.os",
    ),
)
SHELL: dict[str, Node] = {
    **{f"{alias}.system": call(f"{alias}.system", TOUCH) for alias in _OS_ALIASES},
    "posix.system": call("posix.system", TOUCH),
    "os.spawnlp": call("os.spawnlp", 0, "touch", "touch", MARKER),
    "subprocess.run": call("subprocess.run", args=["touch", MARKER]),
    "subprocess.call": call("subprocess.call", ["touch", MARKER]),
    "subprocess.check_call": call("subprocess.check_call", ["touch", MARKER]),
    "subprocess.check_output": call("subprocess.check_output", args=TOUCH, shell=True),  # noqa: S604 - the point
    "subprocess.getoutput": call("subprocess.getoutput", TOUCH),
    "subprocess.getstatusoutput": call("subprocess.getstatusoutput", cmd=TOUCH),
    "pty.spawn": call("pty.spawn", ["touch", MARKER]),
    "psutil.Popen.wait": call("psutil.Popen.wait", call("psutil.Popen", ["touch", MARKER])),
    "git.cmd.Git.execute": call("git.cmd.Git.execute", call("git.cmd.Git", "."), ["touch", MARKER]),
    "lightning_launcher": call(
        "lightning.pytorch.strategies.launchers.subprocess_script.subprocess.check_call", ["touch", MARKER]
    ),
}
FILES: dict[str, Node] = {
    "os.mkdir": call("os.mkdir", MARKER),
    "os.makedirs": call("os.makedirs", name=MARKER),
    "os.open": call("os.open", MARKER, 65),
    "os.mkfifo": call("os.mkfifo", MARKER),
    "os.symlink": call("os.symlink", "/", MARKER),
    "posix.mkdir": call("posix.mkdir", MARKER),
    "nested_open": call("builtins.print", "x", file=call("builtins.open", MARKER, "w")),
    "builtins.open": call("builtins.open", MARKER, "w"),
    "io.open": call("io.open", MARKER, "w"),
    "io.FileIO": call("io.FileIO", MARKER, "w"),
    "codecs.open": call("codecs.open", MARKER, "w"),
    "gzip.open": call("gzip.open", MARKER, "w"),
    "bz2.open": call("bz2.open", MARKER, "w"),
    "lzma.open": call("lzma.open", MARKER, "w"),
    "zipfile.ZipFile": call("zipfile.ZipFile", MARKER, "w"),
    "tarfile.open": call("tarfile.open", MARKER, "w"),
    "shelve.open": call("shelve.open", MARKER),
    "sqlite3.connect": call("sqlite3.connect", MARKER),
    "shutil.copyfile": call("shutil.copyfile", "/etc/passwd", MARKER),
    "shutil.copytree": call("shutil.copytree", "hub", MARKER),
    "torch_shutil": call("torchvision.datasets.mnist.shutil.copy", "/etc/passwd", MARKER),
    "tempfile.mkdtemp": call("tempfile.mkdtemp", prefix=MARKER, dir="."),
    "pathlib.Path.touch": call("pathlib.Path.touch", call("pathlib.Path", MARKER)),
    "pathlib.Path.mkdir": call("pathlib.Path.mkdir", call("pathlib.Path", MARKER)),
    "logging.FileHandler": call("logging.FileHandler", MARKER),
    "urllib.urlretrieve": call("urllib.request.urlretrieve", "file:///etc/passwd", MARKER),
    "py_compile": call("py_compile.compile", "harmless.py", cfile=MARKER),
    "torch.save": call("torch.save", {}, MARKER),
    "numpy.savetxt": call("numpy.savetxt", MARKER, [1]),
    "git.Repo.init": call("git.Repo.init", MARKER),
    "assay_write": call("assay.files.atomic.write_text", call("pathlib.Path", MARKER), "x"),
    "assay_run": call("assay.record.run_directory.RunDirectory.create", call("pathlib.Path", MARKER)),
}
EVALUATORS: dict[str, Node] = {
    "builtins.exec": call("builtins.exec", CODE),
    "builtins.eval": call("builtins.eval", CODE),
    "torchmetrics_builtins": call("torchmetrics.metric.builtins.exec", CODE),
    "timeit.timeit": call("timeit.timeit", stmt=CODE, number=1),
    "cProfile.run": call("cProfile.run", CODE),
    "trace.Trace.run": call("trace.Trace.run", call("trace.Trace", trace=0), CODE),
    "code.runsource": call(
        "code.InteractiveInterpreter.runsource", call("code.InteractiveInterpreter"), CODE
    ),
    "runpy.run_path": call("runpy.run_path", f"{IMPORT_MODULE}.py"),
    "site.addsitedir": call("site.addsitedir", "sites"),
    "sympy.sympify": call("sympy.sympify", f"__import__('os').system('{TOUCH}')"),
    "logging.dictConfig": call(
        "logging.config.dictConfig",
        {"version": 1, "handlers": {"x": {"()": "logging.FileHandler", "filename": MARKER}}},
    ),
    "logging.fileConfig": call("logging.config.fileConfig", "logging.ini"),
    "map": call("builtins.list", call("builtins.map", partial("os.system"), [TOUCH])),
    "operator.call": call("operator.call", partial("os.system", TOUCH)),
    "hydra.utils.call": call(
        "hydra.utils.call", {"_target_": "os.mkdir", "path": MARKER}, _recursive_=False, _convert_="all"
    ),
    "hydra.utils.instantiate": call(
        "hydra.utils.instantiate",
        config={"_target_": "logging.FileHandler", "filename": MARKER},
        _recursive_=False,
    ),
    "instantiate_class": call(
        "lightning.pytorch.cli.instantiate_class",
        TOUCH,
        {"class_path": "os.system"},
    ),
    "getattr": call(
        "operator.call", call("builtins.getattr", call("builtins.__import__", "os"), "system"), TOUCH
    ),
}
LOADERS: dict[str, Node] = {
    "torch.load": call("torch.load", "evil.pt", weights_only=False),
    "torch.serialization.load": call("torch.serialization.load", f="evil.pt", weights_only=False),
    "torch.hub.load": call("torch.hub.load", repo_or_dir="hub", model="evil", source="local"),
    "torch.hub.load_local": call("torch.hub._load_local", "hub", "evil"),
    "numpy.load": call("numpy.load", file="evil.npy", allow_pickle=True),
    "numpy.lib.npyio.load": call("numpy.lib._npyio_impl.load", "evil.npy", allow_pickle=True),
    "pickle.load": call("pickle.load", call("builtins.open", "evil.pkl", "rb")),
    "pickle.loads": call("pickle.loads", call("pathlib.Path.read_bytes", call("pathlib.Path", "evil.pkl"))),
    "_pickle.load": call("_pickle.load", call("io.open", "evil.pkl", "rb")),
    "cloudpickle.load": call("cloudpickle.load", call("io.open", "evil.pkl", "rb")),
    "pickle_re_export": call("torchvision.datasets.cifar.pickle.load", call("io.open", "evil.pkl", "rb")),
    "datapipes_decoder": call(
        "torch.utils.data.datapipes.utils.decoder.basichandlers",
        "pickle",
        call("pathlib.Path.read_bytes", call("pathlib.Path", "evil.pkl")),
    ),
    "joblib.load": call("joblib.load", "evil.pkl"),
    "pandas.read_pickle": call("pandas.read_pickle", "evil.pkl"),
    "pandas.io.pickle": call("pandas.io.pickle.read_pickle", "evil.pkl"),
    "yaml.unsafe_load": call("yaml.unsafe_load", f"!!python/object/apply:os.system ['{TOUCH}']"),
    "yaml.load": call(
        "yaml.load",
        f"!!python/object/apply:os.system ['{TOUCH}']",
        call("hydra.utils.get_class", "yaml.UnsafeLoader"),
    ),
    "lightning_load": call("lightning.fabric.utilities.cloud_io._load", "evil.pt", weights_only=False),
    "load_from_checkpoint": call(
        "lightning.pytorch.LightningModule.load_from_checkpoint", "evil.pt", weights_only=False
    ),
    "load_from_checkpoint_by_module": call(
        "lightning.pytorch.core.saving._load_from_checkpoint",
        call("hydra.utils.get_class", "assay.module.Module"),
        "evil.pt",
        weights_only=False,
    ),
    "boring_model": call(
        "lightning.pytorch.demos.boring_classes.BoringModel.load_from_checkpoint",
        "evil.pt",
        weights_only=False,
    ),
    "torchvision_lsun": call("torchvision.datasets.lsun.pickle.load", call("io.open", "evil.pkl", "rb")),
    "numpy_memmap": call("numpy.ndarray.dump", call("numpy.zeros", 3), MARKER),
    "torch_graph": call("torch.utils.data.graph.pickle.load", call("io.open", "evil.pkl", "rb")),
}
IMPORTERS: dict[str, Node] = {
    "importlib.import_module": call("importlib.import_module", IMPORT_MODULE),
    "importlib.__import__": call("importlib.__import__", IMPORT_MODULE),
    "builtins.__import__": call("builtins.__import__", IMPORT_MODULE),
    "torch_importlib": call("torch.nn.functional.importlib.import_module", IMPORT_MODULE),
    "lightning_importlib": call(
        "lightning.pytorch.callbacks.progress.tqdm_progress.importlib.import_module", IMPORT_MODULE
    ),
    "assay_importlib": call("assay.targets.resolve.importlib.import_module", IMPORT_MODULE),
    "assay_locate": call("assay.targets.resolve._locate", IMPORT_MODULE),
    "pydoc.locate": call("pydoc.locate", IMPORT_MODULE),
    "pkgutil.resolve_name": call("pkgutil.resolve_name", IMPORT_MODULE),
    "runpy.run_module": call("runpy.run_module", IMPORT_MODULE),
    "hydra.get_method": call("hydra.utils.get_method", f"{IMPORT_MODULE}.run"),
    "hydra.get_class": call("hydra.utils.get_class", f"{IMPORT_MODULE}.Net"),
    "hydra.get_object": call("hydra.utils.get_object", f"{IMPORT_MODULE}.Net"),
    "hydra_locate": call("hydra._internal.utils._locate", f"{IMPORT_MODULE}.Net"),
    "logging._importer": call("logging.config._resolve", f"{IMPORT_MODULE}.Net"),
    "xmlrpc": call(
        "unittest.loader.TestLoader.loadTestsFromName", call("unittest.TestLoader"), f"{IMPORT_MODULE}.x"
    ),
    "inspect": call("doctest.testfile", "evil.txt", module_relative=False),
    "lightning_class": call(
        "lightning.pytorch.cli.instantiate_class", [], {"class_path": f"{IMPORT_MODULE}.Net"}
    ),
    "itself": call(f"{IMPORT_MODULE}.Net"),
    "itself_function": call(f"{IMPORT_MODULE}.run"),
}
ALL: dict[str, Node] = {
    **{f"shell/{name}": node for name, node in SHELL.items()},
    **{f"files/{name}": node for name, node in FILES.items()},
    **{f"evaluators/{name}": node for name, node in EVALUATORS.items()},
    **{f"loaders/{name}": node for name, node in LOADERS.items()},
    **{f"importers/{name}": node for name, node in IMPORTERS.items()},
}
"""Every payload by the name of its kind and its own."""
