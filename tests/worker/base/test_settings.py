"""The settings table."""

from __future__ import annotations

import pytest

from worker.base.settings import Settings, SettingsError, rows, table, unknown_variables


def test_defaults_without_environment() -> None:
    """An empty environment gives the defaults of the table."""
    assert Settings.from_env({}) == Settings()


def test_values_take_the_type_of_the_default() -> None:
    """Integers, numbers and text are read as such."""
    read = Settings.from_env({"GLLE_PORT": "9000", "GLLE_SHARD_SECONDS": "0.5", "GLLE_DATA_DIR": "/x"})
    assert (read.port, read.shard_seconds, read.data_dir) == (9000, 0.5, "/x")


@pytest.mark.parametrize("text", ["", "many", "1.5", "0", "-3", "nan"])
def test_bad_value_is_named_with_what_would_do(text: str) -> None:
    """A value that is no integer of at least one is refused by name."""
    with pytest.raises(SettingsError, match=r"GLLE_WORKERS=.*must be an integer of at least 1"):
        Settings.from_env({"GLLE_WORKERS": text})


def test_a_choice_is_one_of_those_there_are() -> None:
    """A word that is none of them is refused with the list."""
    assert Settings.from_env({"GLLE_AUTH": "required"}).auth == "required"
    for word in ("on", "", "Required", "none"):
        with pytest.raises(SettingsError, match=r"GLLE_AUTH=.* must be one of auto, required, off\."):
            Settings.from_env({"GLLE_AUTH": word})


def test_nan_is_no_number_of_seconds() -> None:
    """NaN compares with nothing and is refused."""
    with pytest.raises(SettingsError, match="GLLE_MAX_WAIT"):
        Settings.from_env({"GLLE_MAX_WAIT": "nan"})


def test_settings_survive_the_environment() -> None:
    """What is handed to a child process by its environment is what it reads."""
    given = Settings(redis_url="redis://:a=b@host:1/0", port=9000, shard_seconds=0.1, log_format="json")
    assert Settings.from_env(given.to_env()) == given


def test_what_sounds_secret_is_marked_so() -> None:
    """A setting that may hold a password or a key is never shown in full."""
    words = {"url", "key", "secret", "password", "token"}
    texts = [row for row in rows() if isinstance(row.default, str)]
    assert [row.name for row in texts if row.name.split("_")[-1].rstrip("s") in words and not row.secret] == []


def test_misspelt_variables_are_found() -> None:
    """A variable that no setting reads is listed."""
    assert unknown_variables({"GLLE_WORKER": "3", "GLLE_WORKERS": "3", "HOME": "/"}) == ["GLLE_WORKER"]


def test_every_setting_is_documented() -> None:
    """Each row has help that is a sentence."""
    lines = table()
    assert len(lines) == len(Settings.__dataclass_fields__)
    assert all(name.startswith("GLLE_") and result.endswith(".") and len(result) > 20 for name, _, result in lines)
