"""What must never be written is not."""

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from assay.config.serialize import to_yaml
from assay.record.secrets import STRUCK, is_secret, redact, redact_tree


def test_names_of_secrets() -> None:
    secrets = (
        "WANDB_API_KEY PGPASSWORD AWS_SECRET_ACCESS_KEY aws_access_key_id APIKEY AZURE_KEY KEY GHTOKEN DSN"
    )
    secrets += " SSH_PASSPHRASE GOOGLE_CREDENTIALS DB_PASS GITHUB_PAT ADMIN_PWD NPM_AUTH SLACK_WEBHOOK_URL"
    assert [name for name in secrets.split() if not is_secret(name)] == []
    others = "HOME PWD OLDPWD PATH KEYBOARD_LAYOUT TOKENIZERS_PARALLELISM MAX_TOKENS PATTERN PASSES COMPASS"
    others += " XAUTHORITY AUTHOR GIT_AUTHOR_NAME BYPASS_CACHE"
    assert [name for name in others.split() if is_secret(name)] == []


def test_values_go_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", 'abc"123/+ x')
    value = 'abc"123/+ x'
    for text in (value, json.dumps({"a": value}), f"https://x.org/?t={quote(value, safe='')}", f"-{value}-"):
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


def test_a_tree_keeps_its_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "1234567")
    tree = {"a": [1234567, ("1234567", "x1234567")], 3: {"1234567": None}, "b": 0.5}
    assert redact_tree(tree) == {"a": [1234567, ["***", "x1234567"]], 3: {"1234567": None}, "b": 0.5}
    assert tree["a"] == [1234567, ("1234567", "x1234567")], "the original is left alone"


RUN = {
    "model": {"_target_": "torch.nn.Linear", "in_features": 4},
    "optimizer": {"_target_": "torch.optim.AdamW", "lr": 0.1},
    "data": {"root": "/data/digits", "source": {"path": "runs/torch.optim/rows.csv"}},
    "name": "digits_small_cnn",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZER_BACKEND", "torch.optim"),
        ("CACHE_KEY", "digits_small_cnn"),
        ("DB_PASSWORD", "digits"),
        ("APP_TOKEN", "torch.optim"),
        ("AZURE_KEY", "torch.nn.Linear"),
    ],
)
def test_what_runs_stays(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert redact_tree(RUN) == RUN


def test_typed_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = "comet-typed-by-hand"
    config = {
        "logger": {"comet": {"api_key": typed, "project": "x", "db": {"password": "pw", "user": "me"}}},
        "model": {"pad_token": "<pad>", "sort_key": "length"},
        "auth": {"token": "${oc.env:HF_TOKEN}"},
        "empty": {"api_key": "", "password": None},
    }
    safe = redact_tree(config)
    assert safe["logger"]["comet"] == {
        "api_key": "***",
        "project": "x",
        "db": {"password": "***", "user": "me"},
    }
    assert {key: safe[key] for key in ("model", "auth", "empty")} == {
        key: config[key] for key in ("model", "auth", "empty")
    }
    overrides = [
        f"+logger.comet.api_key={typed}",
        "logger.comet.db.password='pw x'",
        "model.pad_token=<pad>",
        "a=b",
    ]
    assert redact_tree(overrides) == [
        "+logger.comet.api_key=***",
        "logger.comet.db.password=***",
        "model.pad_token=<pad>",
        "a=b",
    ]
    assert typed not in redact(f"run 1: logger.comet.api_key={typed}")


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
    assert redact(text, code=True) == text


def test_a_secret_of_digits_is_one_too() -> None:
    config = {"api_key": 86420975, "db": {"password": 123456}, "token": 12, "secret": True, "seed": 123456}
    assert redact_tree(config) == config | {"api_key": "***", "db": {"password": "***"}}
    assert redact("sent 86420975 to the server") == "sent *** to the server"


secrets = (
    st.text("abcXYZ019.:#-_ {}[]'\"&*!%@/+=", min_size=6, max_size=20)
    .map(str.strip)
    .filter(lambda s: len(s) >= 6)
)


@given(secret=secrets, before=st.sampled_from(["", "x=", "bearer "]), after=st.sampled_from(["", ";y", " z"]))
def test_no_random_value_reaches_a_file(secret: str, before: str, after: str) -> None:
    value = before + secret + after
    tree = {"outer": {"key": value, "list": [value, [value], {"deep": value}]}, "plain": 1e-4, "text": "1e-4"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_SECRET", f"{secret}0aB4dE6gH8jK1")
        safe = redact_tree({"outer": [f"{before}{secret}0aB4dE6gH8jK1{after}"], **tree})
        patch.setenv("MY_SECRET", secret)
        message = redact(f"<{value}>")
    assert "0aB4dE6gH8jK1" not in str(safe)
    assert secret not in message or STRUCK.find(secret) >= 0
    config = OmegaConf.create(to_yaml(safe))
    assert config.plain == 1e-4
    assert config.text == "1e-4"
