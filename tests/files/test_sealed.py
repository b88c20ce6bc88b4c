"""A sealed file is still what it was, and any change to it shows."""

import json

import pytest
import yaml

from assay.files.checksum import json_is_whole, seal_json, seal_yaml, yaml_is_whole

YAML, JSON = seal_yaml("a: ü\nb: [1, 2]\n"), seal_json('{\n  "a": "ü"\n}')


def test_it_reads_as_before() -> None:
    assert yaml.safe_load(YAML) == {"a": "ü", "b": [1, 2]}
    assert json.loads(JSON).keys() == {"a", "sha256"}
    assert yaml_is_whole(YAML.encode())
    assert json_is_whole(JSON.encode())


def test_any_flip_and_any_cut_shows() -> None:
    for text, is_whole in ((YAML, yaml_is_whole), (JSON, json_is_whole)):
        content = text.encode()
        for at in range(len(content)):
            assert not is_whole(content[:at])
            for bit in range(8):
                assert not is_whole(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
        assert not is_whole(content + b"\n")


@pytest.mark.parametrize("text", [b"", b"a: 1\n"])
def test_no_seal(text: bytes) -> None:
    assert yaml_is_whole(text) is None
    assert json_is_whole(text) is False
