"""The settings table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from worker.base.settings import Settings, SettingsError, parse_size, rows, show_size


def test_defaults_without_environment() -> None:
    """An empty environment gives the defaults of the table."""
    assert Settings.from_env({}) == Settings()


def test_values_take_the_type_of_the_default() -> None:
    """Integers, numbers and text are parsed by the type of the default."""
    read = Settings.from_env({"GLLE_PORT": "9000", "GLLE_DRAIN": "0.5", "GLLE_DATA_DIR": "/x"})
    assert (read.port, read.drain, read.data_dir) == (9000, 0.5, "/x")


@pytest.mark.parametrize("text", ["", "many", "1.5", "0", "-3", "nan"])
def test_an_invalid_value_is_refused_by_name(text: str) -> None:
    """A value that is no integer of at least one is refused with the variable's name."""
    with pytest.raises(SettingsError, match=r"GLLE_WORKERS=.*must be an integer of at least 1"):
        Settings.from_env({"GLLE_WORKERS": text})


def test_an_unknown_choice_is_refused_with_the_list() -> None:
    """The error lists the valid choices."""
    assert Settings.from_env({"GLLE_AUTH": "required"}).auth == "required"
    for word in ("on", "", "Required", "none"):
        with pytest.raises(SettingsError, match=r"GLLE_AUTH=.* must be one of auto, required, off\."):
            Settings.from_env({"GLLE_AUTH": word})


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


@pytest.mark.parametrize("text", ["", "12MB or so", "GiB", "-1MB", "1PB", "1e9", "0B"])
def test_another_size_is_refused_by_name(text: str) -> None:
    """A text that is no size, or is below the minimum, is refused with examples."""
    with pytest.raises(SettingsError, match=r"GLLE_MAX_BODY=.* must be a size of at least 1, such as .*512MB or 1GiB"):
        Settings.from_env({"GLLE_MAX_BODY": text})


@pytest.mark.parametrize("nbytes", [0, 1, 1000, 1024, 3 * 2**20, 2**30, 2**36, 5 * 2**40, 2**50])
def test_a_shown_size_is_read_again(nbytes: int) -> None:
    """A displayed size is the same when it is read."""
    assert parse_size(show_size(nbytes)) == nbytes


def test_an_invalid_flag_is_refused_by_its_own_name() -> None:
    """A flag overrides its variable, and an error names the one that was read."""
    assert Settings.from_env({"GLLE_WORKERS": "3"}, {"workers": "4"}).workers == 4
    with pytest.raises(SettingsError, match=r"^--workers many must be an integer"):
        Settings.from_env({"GLLE_WORKERS": "3"}, {"workers": "many"})


def test_nan_is_no_number_of_seconds() -> None:
    """NaN fails every comparison, so that it is refused."""
    with pytest.raises(SettingsError, match="GLLE_DRAIN"):
        Settings.from_env({"GLLE_DRAIN": "nan"})


def test_an_unknown_setting_is_refused() -> None:
    """A setting that does not exist is an error also in code, where a test would check the defaults."""
    unknown: dict[str, Any] = {"max_jobs": 1}
    with pytest.raises(ValueError, match="max_jobs"):
        replace(Settings(), **unknown)


def test_settings_survive_the_environment() -> None:
    """A child process reads the settings of its parent from its environment."""
    original = Settings(redis_url="redis://:a=b@host:1/0", port=9000, drain=0.1, log_format="json")
    assert Settings.from_env(original.to_env()) == original


def test_secret_settings_are_marked() -> None:
    """A setting that may hold a password or a key is never displayed in full."""
    words = {"url", "key", "secret", "password", "token"}
    texts = [row for row in rows() if isinstance(row.default, str)]
    assert [row.name for row in texts if row.name.split("_")[-1].rstrip("s") in words and not row.secret] == []


def test_every_setting_is_documented() -> None:
    """The help of each row is a sentence."""
    assert [row.name for row in rows() if not row.help.endswith(".") or len(row.help) <= 20] == []
