"""What must never be written is not."""

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from assay.record.secrets import is_secret, redact, redact_tree, redact_values, redact_yaml


@pytest.mark.parametrize(
    "name",
    [
        "WANDB_API_KEY",
        "GITHUB_TOKEN",
        "PGPASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "aws_access_key_id",
        "APIKEY",
        "AZURE_KEY",
        "KEY",
        "MLFLOW_TRACKING_PASSWORD",
        "SSH_PASSPHRASE",
        "GOOGLE_CREDENTIALS",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["HOME", "OMP_NUM_THREADS", "KEYBOARD_LAYOUT", "CUDA_VISIBLE_DEVICES"])
def test_other_names(name: str) -> None:
    assert not is_secret(name)


def test_values_go_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", 'abc"123/+ x')
    value = 'abc"123/+ x'
    for text in (
        value,
        json.dumps({"a": value}),
        f"https://x.org/?t={quote(value, safe='')}",
        f"-{value}{value}-",
    ):
        assert "123" not in redact(text)
        assert "***" in redact(text)


def test_a_value_within_another_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "secret-prefix")
    monkeypatch.setenv("B_TOKEN", "secret-prefix-and-more")
    assert redact("<secret-prefix-and-more> <secret-prefix>") == "<***> <***>"


def test_lines_of_a_private_key(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBK"
    monkeypatch.setenv("DEPLOY_KEY", f"-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----\n")
    assert line not in redact(f"+    {line}\n")


def test_short_values_and_other_variables_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "true")
    monkeypatch.setenv("EMPTY_TOKEN", "")
    monkeypatch.setenv("GREETING", "good morning")
    assert redact("true: good morning") == "true: good morning"


def test_a_tree_keeps_its_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "1234567")
    tree = {"a": [1234567, ("x1234567",)], 3: {"1234567": None}, "b": 0.5}
    assert redact_tree(tree) == {"a": [1234567, ["x***"]], 3: {"***": None}, "b": 0.5}
    assert tree["a"] == [1234567, ("x1234567",)], "the original is left alone"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://me:pw@db.org:5432/x", "postgresql://***@db.org:5432/x"),
        ("https://ghp_abc@github.com/me/x.git", "https://***@github.com/me/x.git"),
        ("see https://example.org/@me or a@b.c", "see https://example.org/@me or a@b.c"),
        ('["sqlite://","a@b"]', '["sqlite://","a@b"]'),
    ],
)
def test_credentials_in_addresses(text: str, expected: str) -> None:
    assert redact(text) == expected
    assert redact_values(text) == text


secrets = (
    st.text("abcXYZ019.:#-_ {}[]'\"&*!%@/+=", min_size=6, max_size=20)
    .map(str.strip)
    .filter(lambda s: len(s) >= 6)
)


@given(secret=secrets, before=st.sampled_from(["", "x", "bearer "]), after=st.sampled_from(["", "y", " z"]))
def test_yaml_stays_yaml(secret: str, before: str, after: str) -> None:
    value = before + secret + after
    tree = {
        "outer": {"key": value, "list": [value, [value], {"deep": value}]},
        "plain": 1e-4,
        "text": "1e-4",
        value: 2,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_SECRET", secret)
        text = redact_yaml(OmegaConf.to_yaml(OmegaConf.create(tree)))
    config = OmegaConf.create(text)
    assert config.plain == 1e-4
    assert config.text == "1e-4"
    assert secret not in str(config.outer.key)
    assert "***" in config.outer.key
    assert "***" in config.outer.list[0]
    assert "***" in config.outer.list[1][0]
    assert "***" in config.outer.list[2].deep


def test_yaml_without_secrets_is_untouched() -> None:
    text = "a: '***'\nb: &anchor 1\nc: *anchor\n"
    assert redact_yaml(text) == text
