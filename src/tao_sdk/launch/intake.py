"""The questions of a launch, in the order of the intake: platform, data, image, compute shape,
credentials, monitoring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tao_sdk import settings
from tao_sdk.launch.datasets import (
    direct_examples,
    example_root,
    file_tokens,
    root_examples,
    root_map,
)
from tao_sdk.launch.facts import Facts
from tao_sdk.launch.plan import LaunchPlan
from tao_sdk.launch.questions import Question

__all__ = ["confirmation_text", "open_questions"]

SMOKE, NORMAL, LONG = "1-2 minutes for a smoke test", "5 for training", "10-15 for long runs"


def open_questions(plan: LaunchPlan) -> list[Question]:
    """What is not known yet. Nothing is asked twice, and nothing that does not apply."""
    facts = plan.facts
    facts.automl  # noqa: B018 - a policy that cannot be followed is said before anything is asked
    return [
        *_platform(facts),
        *_dataset(facts),
        *_image(facts),
        *_compute(facts),
        *_credentials(facts),
        *_monitoring(facts),
    ]


def confirmation_text(title: str, image: str) -> str:
    """The words in which the default image is shown and confirmed."""
    return (
        f"Container image for {title}:\ndefault={image}\n\n"
        "Use this image, or provide image=<override>?"
    )


def _platform(facts: Facts) -> Iterator[Question]:
    if facts.platform is not None:
        return
    records = facts.manifest["platforms"]
    yield Question(
        id="platform",
        question="Which platform should run this?",
        why="Credentials, paths and the way of submitting all depend on it.",
        choices=tuple(record["name"] for record in records),
        default=settings.lookup("TAO_PLATFORM") or None,
        answer_with=("--platform NAME",),
        items=tuple(
            {
                "name": record["name"],
                "display_name": record.get("display_name", record["name"]),
                "description": record.get("description", ""),
                "aliases": list(record.get("aliases") or []),
            }
            for record in records
        ),
    )


# ---------------------------------------------------------------- data


def _dataset(facts: Facts) -> Iterator[Question]:
    keys = askable_keys(facts)
    if not keys:
        return
    required = bool(facts.open_keys)
    shown = example_platform(facts)
    roots = roots_to_ask(facts)
    direct = direct_examples(keys, facts.data_sources, shown, facts.network, facts.data_format)
    from_roots = [f"{root}={example_root(shown, facts.network, root)}" for root in roots]
    yield Question(
        id="dataset",
        question=(
            f"Where are the data for {facts.title}? Give the roots of the datasets, or the exact "
            "paths by spec key."
            if roots
            else f"Where are the inputs of {facts.title}? Give the exact paths by spec key."
        ),
        why=f"These spec keys have no value: {', '.join(keys)}."
        if required
        else "The model's metadata calls these data optional.",
        examples=(*from_roots, *direct),
        required=required,
        answer_with=(
            *(root_flag(root) for root in roots),
            *(f"--set {key}=PATH" for key in keys),
            *(f"--file-name {token}=NAME" for token in open_file_names(facts)),
        ),
        items=tuple(_dataset_items(facts, keys)),
    )


def askable_keys(facts: Facts) -> dict[str, Any]:
    """Spec keys to ask for: those without a value, else optional data if none were given."""
    if facts.open_keys or facts.plan.given_roots():
        return facts.open_keys
    mapped = [key for root in facts.roots for key in map_of(facts, root)]
    return {} if any(key in facts.paths for key in mapped) else dict.fromkeys(mapped)


def roots_to_ask(facts: Facts) -> list[str]:
    """The roots that would fill such a key."""
    keys = askable_keys(facts)
    return [root for root in facts.roots if any(key in keys for key in map_of(facts, root))]


def example_platform(facts: Facts) -> Mapping[str, Any]:
    """Whose examples are shown: the chosen platform's, else those of a cluster."""
    if facts.platform is not None:
        return facts.platform
    records = facts.manifest["platforms"]
    clusters = (r for r in records if (r.get("storage") or {}).get("protocol") == "lustre")
    record: Mapping[str, Any] = next(clusters, records[0])
    return record


def platform_examples(facts: Facts) -> dict[str, list[str]]:
    """Folders as each platform names them, or as the chosen one does."""
    records = [facts.platform] if facts.platform else facts.manifest["platforms"]
    return {
        str(record.get("platform") or record["name"]): root_examples(record, facts.network)
        for record in records
    }


def map_of(facts: Facts, root: str) -> dict[str, str]:
    """The spec keys that a root fills, and with what."""
    in_store = example_root(example_platform(facts), facts.network, root).startswith("s3://")
    return root_map(facts.data_sources, root, facts.data_format, in_store=in_store)


def root_flag(root: str) -> str:
    """The flag that gives a root."""
    usual = ("train_root", "eval_root", "calibration_root")
    return f"--{root.replace('_', '-')} PATH" if root in usual else f"--root {root}=PATH"


def _dataset_items(facts: Facts, keys: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    maps = {root: map_of(facts, root) for root in facts.roots}
    for key, options in keys.items():
        root = next((root for root, filled in maps.items() if key in filled), None)
        yield {
            "key": key,
            "type": (options or {}).get("type", ""),
            "root": root,
            "below_root": maps[root][key] if root else None,
        }


def open_file_names(facts: Facts) -> list[str]:
    """File names that the metadata leaves to the person."""
    return [name for name in file_tokens(facts.data_sources) if name not in facts.plan.file_names]


# ---------------------------------------------------------------- image, compute


def _image(facts: Facts) -> Iterator[Question]:
    if facts.plan.image is not None or facts.plan.image_confirmed:
        return
    yield Question(
        id="image",
        question=confirmation_text(facts.title, facts.default_image),
        why="The default image is never taken without a word.",
        default=facts.default_image,
        examples=(f"image={facts.default_image.partition(':')[0]}:<tag>",),
        answer_with=("--confirm-image", "--image IMAGE"),
    )


def _compute(facts: Facts) -> Iterator[Question]:
    shape = facts.compute
    if shape.gpus is not None:
        return
    suggested = facts.default_gpus
    keys = facts.compute_keys
    yield Question(
        id="compute",
        question="How many GPUs per node, and on how many nodes?",
        why="The job asks the platform for them"
        + (f", and the spec has them in {' and '.join(keys)}." if keys else "."),
        default=None if suggested is None else {"gpus": suggested, "nodes": facts.nodes},
        examples=("gpus=1", "gpus=8 nodes=2"),
        answer_with=("--gpus N", "--nodes N"),
    )


# ---------------------------------------------------------------- credentials, monitoring


def _credentials(facts: Facts) -> Iterator[Question]:
    absent = [credential for credential in facts.credentials if not credential.present]
    if not absent and facts.platform is not None:
        return
    later = "" if facts.platform else " Those of the platform follow once it is chosen."
    names = ", ".join(credential.name for credential in absent)
    yield Question(
        id="credentials",
        question=f"Set {names} in the environment." if absent else "Which credentials are needed?",
        why="Only whether a variable is set is looked at, never its value." + later,
        answer_with=tuple(f"export {credential.name}=…" for credential in absent),
        items=tuple(credential.as_json() for credential in absent),
    )


def _monitoring(facts: Facts) -> Iterator[Question]:
    plan = facts.plan
    if plan.monitor is None:
        yield Question(
            id="monitoring",
            question="Shall the run be watched here until it ends?",
            why=(
                "Watched, it is reported on until it has ended, failed, or you say stop, also "
                "while it waits in a queue for hours or days. Otherwise you get its id and the "
                "place of its log, and the reports end there."
            ),
            choices=("yes", "no"),
            default=facts.monitor,
            required=False,
            answer_with=("--monitor", "--no-monitor"),
        )
    if facts.monitor and plan.status_interval_minutes is None:
        yield Question(
            id="status_interval",
            question="How many minutes between two reports?",
            why=f"{SMOKE}, {NORMAL}, {LONG}.",
            default=facts.status_interval_minutes,
            examples=("1", "5", "15"),
            required=False,
            answer_with=("--status-interval MINUTES",),
        )
