"""Write a spec that the client has checked (`tao_sdk.spec_files`)."""

from __future__ import annotations

import json
from typing import Any


def spec_text(spec: dict[str, Any], config_format: str) -> str:
    """The text of a spec file. Only the writer that a job needs travels with it."""
    if config_format == "yaml":
        from .yaml_writer import dump_yaml

        return dump_yaml(spec)
    if config_format == "toml":
        from .toml_writer import dump_toml

        return dump_toml(spec)
    return json.dumps(spec, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
