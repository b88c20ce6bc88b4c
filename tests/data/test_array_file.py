from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import pytest

from assay.data.arrays import NoArrayError, header_of, read_array

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ARRAYS = {"x": np.arange(12.0).reshape(3, 4), "y": np.array([1, 0, 2], dtype=np.int16)}


@pytest.fixture(params=["archive", "compressed", "folder"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return saved(tmp_path / "data", request.param, ARRAYS)


def saved(path: Path, kind: str, arrays: Mapping[str, Any]) -> Path:
    if kind != "folder":
        file = path.with_suffix(".npz")
        (np.savez if kind == "archive" else np.savez_compressed)(file, **arrays)
        return file
    path.mkdir()
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    return path


@pytest.mark.parametrize("name", ARRAYS)
def test_what_was_saved_is_read(root: Path, name: str) -> None:
    found = read_array(root, name)
    np.testing.assert_array_equal(found, ARRAYS[name])
    assert found.dtype == ARRAYS[name].dtype
    assert header_of(root, name) == (ARRAYS[name].shape, ARRAYS[name].dtype)


def test_writing_to_what_was_read_changes_no_file(root: Path) -> None:
    read_array(root, "x")[:] = -1
    np.testing.assert_array_equal(read_array(root, "x"), ARRAYS["x"])


@pytest.mark.parametrize("read", [read_array, header_of])
def test_a_name_that_is_not_there_names_those_that_are(root: Path, read: Any) -> None:
    with pytest.raises(NoArrayError) as missing:
        read(root, "z")
    assert sorted(missing.value.known) == ["x", "y"]


@pytest.mark.parametrize("kind", ["archive", "folder"])
def test_pickled_objects_are_not_read(tmp_path: Path, kind: str) -> None:
    root = saved(tmp_path / "data", kind, {"x": np.array([{}], dtype=object)})
    with pytest.raises(ValueError, match=r"(?i)object"):
        read_array(root, "x")


@pytest.mark.parametrize("read", [read_array, header_of])
def test_a_file_that_is_no_archive(tmp_path: Path, read: Any) -> None:
    path = tmp_path / "data.npz"
    path.write_bytes(b"not a zip file")
    with pytest.raises(BadZipFile):
        read(path, "x")


def test_a_version_without_plain_arrays(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.lib.format.write_array(file, ARRAYS["x"], version=(3, 0))
    (tmp_path / "x.npy").write_bytes(file.getvalue())
    with pytest.raises(ValueError, match=r"version \(3, 0\)"):
        header_of(tmp_path, "x")
