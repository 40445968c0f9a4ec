"""The settings table."""

from __future__ import annotations

import pytest

from worker.base.settings import Settings, SettingsError, rows, table, unknown_variables


def test_defaults_without_environment() -> None:
    """An empty environment gives the defaults of the table."""
    assert Settings.from_env({}) == Settings()


def test_values_take_the_type_of_the_default() -> None:
    """Integers, numbers and text are parsed by the type of the default."""
    read = Settings.from_env({"GLLE_PORT": "9000", "GLLE_SHARD_SECONDS": "0.5", "GLLE_DATA_DIR": "/x"})
    assert (read.port, read.shard_seconds, read.data_dir) == (9000, 0.5, "/x")


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


def test_nan_is_no_number_of_seconds() -> None:
    """NaN fails every comparison, so that it is refused."""
    with pytest.raises(SettingsError, match="GLLE_MAX_WAIT"):
        Settings.from_env({"GLLE_MAX_WAIT": "nan"})


def test_settings_survive_the_environment() -> None:
    """A child process reads the settings of its parent from its environment."""
    original = Settings(redis_url="redis://:a=b@host:1/0", port=9000, shard_seconds=0.1, log_format="json")
    assert Settings.from_env(original.to_env()) == original


def test_secret_settings_are_marked() -> None:
    """A setting that may hold a password or a key is never displayed in full."""
    words = {"url", "key", "secret", "password", "token"}
    texts = [row for row in rows() if isinstance(row.default, str)]
    assert [row.name for row in texts if row.name.split("_")[-1].rstrip("s") in words and not row.secret] == []


def test_unknown_variables_are_listed() -> None:
    """A variable that no setting reads is listed."""
    assert unknown_variables({"GLLE_WORKER": "3", "GLLE_WORKERS": "3", "HOME": "/"}) == ["GLLE_WORKER"]


def test_every_setting_is_documented() -> None:
    """The help of each row is a sentence."""
    lines = table()
    assert len(lines) == len(Settings.__dataclass_fields__)
    assert all(name.startswith("GLLE_") and result.endswith(".") and len(result) > 20 for name, _, result in lines)
