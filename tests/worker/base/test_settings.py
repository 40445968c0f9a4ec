"""The settings table."""

from __future__ import annotations

import pytest

from worker.base.settings import Settings, SettingsError, parse_size, rows, show_size


def test_values_take_the_type_of_the_default() -> None:
    """The environment of a child process gives back the settings of its parent; an empty one gives the defaults."""
    original = Settings(redis_url="redis://:a=b@host:1/0", port=9000, drain=0.1, log_format="json")
    assert Settings.from_env(original.to_env()) == original
    assert Settings.from_env({}) == Settings()
    assert Settings.from_env({"GLLE_AUTH": "required"}).auth == "required"
    assert Settings.from_env({"GLLE_WORKERS": "3"}, {"workers": "4"}).workers == 4, "a flag overrides its variable"


@pytest.mark.parametrize(
    ("variable", "texts", "message"),
    [
        ("GLLE_WORKERS", ["", "many", "1.5", "0", "-3", "nan"], "must be an integer of at least 1"),
        ("GLLE_AUTH", ["on", "", "Required", "none"], r"must be one of auto, required, off\."),
        ("GLLE_PORT", ["-1", "65536"], "must be an integer of at least 0 and at most 65535"),
        ("GLLE_DRAIN", ["nan"], "must be a number"),
        (
            "GLLE_MAX_BODY",
            ["", "12MB or so", "GiB", "-1MB", "1PB", "1e9", "0B"],
            "must be a size of at least 1, such as .*512MB or 1GiB",
        ),
    ],
)
def test_an_invalid_value_is_refused_by_name(variable: str, texts: list[str], message: str) -> None:
    """The message has the name that was read, and the valid choices."""
    for text in texts:
        with pytest.raises(SettingsError, match=f"{variable}=.*{message}"):
            Settings.from_env({variable: text})
    with pytest.raises(SettingsError, match=r"^--workers many must be an integer"):
        Settings.from_env({"GLLE_WORKERS": "3"}, {"workers": "many"})


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("1048576", 2**20), ("512MB", 512_000_000), ("1GiB", 2**30), ("1.5 gb", 1_500_000_000), ("4Ki", 4096),
        ("0.1MB", 100_000), ("7B", 7),
    ],
)  # fmt: skip
def test_sizes_have_units(text: str, nbytes: int) -> None:
    """A size is bytes, or a number with a decimal or binary unit."""
    assert Settings.from_env({"GLLE_MAX_BODY": text}).max_body == nbytes


@pytest.mark.parametrize("nbytes", [0, 1, 1000, 1024, 3 * 2**20, 2**30, 2**36, 5 * 2**40, 2**50])
def test_a_shown_size_is_read_again(nbytes: int) -> None:
    """A size is written so that reading it gives the same number of bytes."""
    assert parse_size(show_size(nbytes)) == nbytes


def test_secret_settings_are_marked() -> None:
    """A setting that may hold a password or a key is never displayed in full."""
    words = {"url", "key", "secret", "password", "token"}
    texts = [row for row in rows() if isinstance(row.default, str)]
    assert [row.name for row in texts if row.name.split("_")[-1].rstrip("s") in words and not row.secret] == []


def test_every_setting_is_documented() -> None:
    """The help of each row is a sentence."""
    assert [row.name for row in rows() if not row.help.endswith(".") or len(row.help) <= 20] == []
