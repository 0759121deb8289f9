"""Settings of older learners."""

from typing import Any

from graphglow.errors import InputError

RETIRED = {"sharpness": 10.0, "latent_degree": None, "train_learner": False}
"""Settings that older versions had, with the value under which nothing is different without."""


def current_settings(saved: Any) -> dict[str, Any]:
    """Settings out of a file, less the retired ones, which are refused where they did something."""
    if not isinstance(saved, dict):
        raise InputError(f"settings must be given by name; got {saved!r}")
    for name, default in RETIRED.items():
        if saved.get(name, default) != default:
            raise InputError(
                f"{name} must be {default}: graphglow has no other any more; got {saved[name]}"
            )
    return {name: value for name, value in saved.items() if name not in RETIRED}
