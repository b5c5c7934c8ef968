"""What is taken out, and above all what is not."""

from __future__ import annotations

import json

import pytest

from storage.redaction import HIDDEN, Redactor, is_secret, redact, redact_command, redact_values

SECRET = "s3cr3t-Value.42"


@pytest.mark.parametrize(
    "name",
    [
        "--api-key",
        "--admin-api-key",
        "--ssl-keyfile-password",
        "--hf-token",
        "--encryption-key",
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "MASTER_KEY",
        "TOKEN",
        "HF_TOKEN_2",
        "PGPASSWORD",
        "MYSQL_PWD",
        "SMTP_PASS",
        "api_key",
        "apiKey",
        "client_secret",
        "x-api-key",
        "auth_token",
    ],
)
def test_a_name_whose_words_say_so_holds_a_secret(name: str) -> None:
    assert is_secret(name, SECRET)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("--tokenizer-path", "/models/x"),
        ("--tokenizer-mode", "auto"),
        ("--max-total-tokens", 4096),
        ("--skip-tokenizer-init", True),
        ("--speculative-token-map", "/models/map.pt"),
        ("--ssl-keyfile", "/etc/key.pem"),
        ("--kv-cache-dtype", "fp8_e4m3"),
        ("--speculative-num-draft-tokens", 4),
        ("eos_token", "</s>"),
        ("bytes_per_token", 12.5),
        ("pcie_bytes_per_token", 1e6),
        ("new-token", "512"),
        ("token", "512"),
        ("key", "concurrency"),
        ("MONKEY", "banana"),
        ("KEYBOARD_LAYOUT", "us"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("SGLANG_PER_TOKEN_GROUP_QUANT_8BIT_V2", "1"),
        ("SGLANG_NUM_TOKENS", "yes please"),
        ("HF_TOKEN_PATH", "/run/secrets/hf"),
        ("POSTGRES_PASSWORD_FILE", "/run/secrets/pg"),
        ("PWD", "/home/someone"),
        ("use_api_key", False),
    ],
)
def test_a_name_that_only_contains_such_letters_holds_none(name: str, value: object) -> None:
    assert not is_secret(name, value)


@pytest.mark.parametrize(
    "text",
    [
        f"python -m sglang.launch_server --api-key {SECRET} --tp 8",
        f"--api-key={SECRET}",
        f"--admin-api-key '{SECRET}'",
        f"['--api-key', '{SECRET}', '--tp', '8']",
        f"ServerArgs(api_key='{SECRET}', tokenizer_path='/m')",
        json.dumps({"api_key": SECRET}),
        json.dumps(json.dumps({"api_key": SECRET, "b": "c"})),
        f"flags:\n  --api-key: {SECRET}\n  --tp-size: 8\n",
        f"export HF_TOKEN={SECRET}; ls",
        f"https://x.example/v1?api_key={SECRET}&b=2",
        f"postgresql://user:{SECRET}@db/quietlane",
        f"postgresql://user:a@{SECRET}@db/quietlane",
        f"host=db password={SECRET} dbname=x",
        f"Authorization: Bearer {SECRET}",
        f"curl -H 'Authorization: Basic {SECRET}'",
    ],
)
def test_a_secret_is_taken_out_of_a_text(text: str) -> None:
    assert SECRET not in redact(text)
    assert HIDDEN in redact(text)


@pytest.mark.parametrize("secret", ["hf_" + "aB3" * 9, "sk-" + "x1Y" * 9, "ghp_" + "Z9z" * 9, "AKIA" + "ABCD1234" * 2])
def test_a_secret_is_known_by_its_shape_alone(secret: str) -> None:
    assert redact(f"could not load with {secret}, giving up") == f"could not load with {HIDDEN}, giving up"


@pytest.mark.parametrize(
    "text",
    [
        "Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0, token usage: 0.02, #running-req: 0",
        "Decode batch, #running-req: 4, #full token: 1034, full token usage: 0.11, accept len: 2.71",
        "python -m sglang.launch_server --tokenizer-path /models/m --max-total-tokens 4096 --skip-tokenizer-init",
        "max_total_num_tokens=123456, chunked_prefill_size=8192, max_prefill_tokens=16384",
        "SyntaxError: unexpected token: foo",
        "password authentication failed for user quietlane",
        "a basic configuration that the bearer accepted",
        "http://127.0.0.1:30000/generate",
        "api_key=None, admin_api_key=None",
        'the key "concurrency" of the level',
        "mean time per output token: 5.2 ms",
    ],
)
def test_an_innocent_text_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


def test_a_command_line_loses_the_word_after_the_flag() -> None:
    command = ["python", "--api-key", SECRET, "--admin-api-key=" + SECRET, "--skip-tokenizer-init", "--tp-size", "8"]
    kept = ["python", "--api-key", HIDDEN, "--admin-api-key=" + HIDDEN, "--skip-tokenizer-init", "--tp-size", "8"]
    assert redact_command(command) == kept


def test_nested_values_are_searched_to_the_bottom() -> None:
    found = redact_values({"a": [{"hf_token": SECRET}, f"--api-key {SECRET}"], "tokens": [1, 2], "api_key": 12345678})
    assert found == {"a": [{"hf_token": HIDDEN}, f"--api-key {HIDDEN}"], "tokens": [1, 2], "api_key": HIDDEN}


def test_a_secret_once_seen_is_taken_out_wherever_it_turns_up() -> None:
    redactor = Redactor()
    redactor.learn({"HF_TOKEN": "correct horse"})
    redactor.learn_command(["serve", "--api-key", "battery staple", "--tp", "8"])
    assert redactor.text("refused 'correct horse' and (battery staple)") == f"refused '{HIDDEN}' and ({HIDDEN})"


def test_what_no_database_takes_is_replaced() -> None:
    assert Redactor().text("a\x00b\udcff") == "a\ufffdb?"
