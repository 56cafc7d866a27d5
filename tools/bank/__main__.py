"""Write the bank's models, or check that they are up to date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from tools.bank import schemas, skill_info
from tools.bank.model_source import ModelSource, read_models
from tools.bank.platforms import platform_files
from tools.bank.schemas import Glossary
from tools.bank.texts import json_text, yaml_text

_HERE = Path(__file__).parent
BANK = _HERE.parents[1] / "src" / "tao_sdk" / "skills" / "bank"
_MODELS = Path("skills", "models")


def generated_files() -> dict[Path, str]:
    """Every file that is made from the tables, below the bank."""
    glossary = Glossary(yaml.safe_load((_HERE / "glossary.yaml").read_text(encoding="utf-8")))
    models = read_models(_HERE / "models")
    files = {
        _MODELS / "schemas.manifest.json": json_text(schemas.schemas_manifest(models)),
        _MODELS / "automl_support.json": json_text(schemas.automl_support(models)),
    }
    for model in models:
        folder = _MODELS / model.skill
        files |= {folder / name: text for name, text in _model_files(model, glossary)}
    return files | platform_files(BANK)


def _model_files(model: ModelSource, glossary: Glossary) -> Iterator[tuple[str, str]]:
    made = f"Made by `python -m tools.bank` from tools/bank/models/{model.path.name}."
    yield "references/skill_info.yaml", yaml_text(skill_info.skill_info(model), made)
    for name, action in model.actions.items():
        title = f"Default spec of {model.network_arch} {name}. Blank values are yours to fill in."
        yield f"references/spec_template_{name}.yaml", yaml_text(action.spec(), title)
    if model.deploy_actions:
        sidecar = f"references/{skill_info.sidecar_name(model)}.skill_info.yaml"
        yield sidecar, yaml_text(skill_info.sidecar(model), made)
        yield from _deploy_templates(model)
    for name, action in model.schema_actions().items():
        text = json_text(schemas.schema(model, action, glossary))
        yield f"schemas/{name}.schema.json", text
    yield "schemas/manifest.json", json_text(schemas.model_manifest(model))


def _deploy_templates(model: ModelSource) -> Iterator[tuple[str, str]]:
    for variant, values in model.deploy.get("variants", {"": {}}).items():
        for name, action in model.deploy_actions.items():
            title = f"Default spec of {model.network_arch} {name} with TensorRT."
            part = f"{variant}_{name}" if variant else name
            text = yaml_text(action.spec(values), title)
            yield f"references/spec_template_deploy_{part}.yaml", text


def stale_files(files: dict[Path, str]) -> list[str]:
    """What differs from the bank as it is, and model files that nothing makes any more."""
    differing = [
        str(path)
        for path, text in files.items()
        if not (BANK / path).is_file() or (BANK / path).read_text(encoding="utf-8") != text
    ]
    there = {p.relative_to(BANK) for p in (BANK / _MODELS).rglob("*") if p.is_file()}
    return sorted([*differing, *map(str, there - set(files))])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bank", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if out of date")
    check = parser.parse_args().check
    files = generated_files()
    stale = stale_files(files)
    for line in stale:
        print(f"{'out of date' if check else 'written'}: {line}")
    if check:
        return 1 if stale else 0
    for name in map(Path, stale):
        if name in files:
            (BANK / name).parent.mkdir(parents=True, exist_ok=True)
            (BANK / name).write_text(files[name], encoding="utf-8")
        else:
            (BANK / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
