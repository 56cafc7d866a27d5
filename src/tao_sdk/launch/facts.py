"""What the bank says about a launch, worked out once per plan and only as far as it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import ValidationError
from tao_sdk.launch.automl import AutomlRoute, automl_route
from tao_sdk.launch.compute import (
    ComputeShape,
    compute_shape,
    suggested_gpus,
    suggested_nodes,
)
from tao_sdk.launch.credentials import Credential, Situation, needed_credentials
from tao_sdk.launch.datasets import data_keys, input_paths, root_names, roots_by_source
from tao_sdk.launch.plan import LaunchPlan
from tao_sdk.launch.secrecy import refuse_visible_secrets
from tao_sdk.models import Mount
from tao_sdk.platforms import registry
from tao_sdk.runner.uris import local_path, scheme_of
from tao_sdk.skills import SkillAction, SkillBank, SpecError, action
from tao_sdk.skills.actions import places_of_count
from tao_sdk.skills.model_skill import ActionMetadata, ModelSkill
from tao_sdk.skills.platform_manifest import (
    describe_platform,
    find_platform,
    platform_manifest,
    prompt_defaults,
)
from tao_sdk.skills.spec_values import holds, parsed

__all__ = ["Facts"]

DOCKER, LOCAL = "local-docker", "local"


class Facts:
    """What follows from the decisions of a plan. Looks at the bank and the environment only."""

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = plan

    @cached_property
    def bank(self) -> SkillBank:
        given = self.plan.bank
        return given if isinstance(given, SkillBank) else SkillBank(given)

    # -- the model

    @cached_property
    def skill(self) -> ModelSkill:
        return self.bank.model(self.plan.model)

    @cached_property
    def metadata(self) -> ActionMetadata:
        return self.skill.action(self.plan.action, deploy=self.plan.deploy)

    @property
    def network(self) -> str:
        return self.skill.network_arch

    @property
    def title(self) -> str:
        """The model and the action, as the gate's texts name them."""
        return f"{self.network}/{self.plan.action}"

    @cached_property
    def automl(self) -> AutomlRoute:
        return automl_route(self.bank, self.skill.folder, self.plan.action, self.plan.automl)

    # -- the platform

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return platform_manifest(self.bank)

    @cached_property
    def platform(self) -> dict[str, Any] | None:
        """The chosen platform as the bank describes it; None before one is chosen."""
        return describe_platform(self.bank, self.plan.platform) if self.plan.platform else None

    @property
    def platform_name(self) -> str:
        return str(self.platform["platform"]) if self.platform else ""

    @cached_property
    def backend_type(self) -> str:
        if not self.plan.platform:
            return ""
        return str(find_platform(self.manifest, self.plan.platform).get("backend_type") or "")

    @property
    def can_run_here(self) -> bool:
        """Whether this SDK has the platform; a bank may list more."""
        return registry.canonical(self.platform_name) in registry.names()

    @property
    def no_way_there(self) -> str:
        """Why no job can go to the chosen platform; "" where it can."""
        if self.platform is None or self.can_run_here:
            return ""
        return f"{self.platform_name} is in the bank's list, but this SDK cannot run jobs there"

    @property
    def uses_images(self) -> bool:
        return self.backend_type != LOCAL

    # -- data

    @cached_property
    def data_sources(self) -> dict[str, Any]:
        declared = self.metadata.section("data_sources")
        return {key: rule for key, rule in declared.items() if rule}

    @property
    def data_format(self) -> str:
        return str(self.metadata.info.get("data_format") or "")

    @property
    def roots(self) -> dict[str, str]:
        """The roots that the action takes, each with its source."""
        return root_names(self.data_sources)

    @cached_property
    def made(self) -> SkillAction:
        """The action with everything that is decided so far."""
        plan = self.plan
        given = plan.given_roots()
        where = f"{self.skill.folder} {plan.action}"
        refuse_visible_secrets(plan)
        for name, place in (*self._single_roots(given), *self._other_places()):
            if not place.startswith("/") and not scheme_of(place):
                raise ValidationError(
                    f"{name}: {place!r} is relative, which means another place on the platform: "
                    "give an absolute path or an address such as s3://bucket/path"
                )
        return action(
            self.skill.folder,
            plan.action,
            bank=self.bank,
            overrides=plan.specs,
            image=plan.image,
            dataset_roots=roots_by_source(self.data_sources, given, where) if given else None,
            file_names=plan.file_names,
            exists=self._exists,
            parent=plan.parent,
            resume=plan.resume,
            pretrained=plan.pretrained,
            results_dir="" if self.results_mount else plan.results,
            gpu_count=self.compute.gpus,
            num_nodes=self.compute.nodes,
            deploy=plan.deploy,
            variant=plan.variant,
        )

    @property
    def open_keys(self) -> dict[str, Any]:
        """Spec keys that need a value, with their declarations."""
        return {key: _declared(self.made.inputs, key) for key in self.made.missing}

    @cached_property
    def paths(self) -> dict[str, str]:
        """Where the inputs are, by spec key."""
        # Some banks map data to keys that they do not declare as inputs.
        keys = [*self.made.inputs, *data_keys(self.data_sources)]
        return input_paths(keys, self.made.specs, self.made.args)

    @property
    def results_mount(self) -> str:
        """A folder of the Docker host that results go to: it has to be mounted."""
        is_folder = self.plan.results.startswith(("/", "file://"))
        return self.plan.results if self.backend_type == DOCKER and is_folder else ""

    @property
    def mounts(self) -> list[Mount]:
        """Folders that a container has to see, when the person did not say so."""
        if self.backend_type != DOCKER or "mounts" in self.plan.options:
            return []
        data = [root for _, root in self._single_roots(self.plan.given_roots())]
        places = sorted({*map(_folder, data), *map(_folder, self.paths.values())} - {""})
        outermost = [
            place for place in places if not any(place.startswith(f"{other}/") for other in places)
        ]
        results = [Mount(_folder(self.results_mount), "/results")] if self.results_mount else []
        return [*(Mount(place, place, read_only=True) for place in outermost), *results]

    @property
    def _exists(self) -> Callable[[str], bool] | None:
        """Files can be looked for here when jobs run here and the data lie here."""
        is_here = self.backend_type == LOCAL or (
            self.platform_name == DOCKER
            and not settings.lookup("DOCKER_HOST").startswith(("ssh://", "tcp://"))
        )
        roots = [root for _, root in self._single_roots(self.plan.given_roots())]
        if not is_here or not all(map(_folder, roots)):
            return None
        # Whether a root itself is there is for the preflight to say: it must not be passed over.
        return lambda address: address in roots or Path(_folder(address)).exists()

    def _other_places(self) -> Iterator[tuple[str, str]]:
        """Places that were given one by one: models, results, and exact paths of data."""
        plan = self.plan
        named = {"parent": plan.parent, "resume": plan.resume, "results": plan.results}
        # An input that is a folder may also be the name of a model.
        files = [key for key, of in self.metadata.mapping("inputs").items() if _is_file(of)]
        exact = {key: plan.specs.get(key) for key in (*self.data_sources, *files)}
        for name, place in {**named, **exact}.items():
            if isinstance(place, str) and place:
                yield name, place

    @staticmethod
    def _single_roots(given: Mapping[str, str | Sequence[str]]) -> Iterator[tuple[str, str]]:
        for name, value in given.items():
            for root in [value] if isinstance(value, str) else value:
                yield name, root

    # -- image, compute, credentials, monitoring

    @cached_property
    def default_image(self) -> str:
        return self.bank.resolve_image(self.skill.folder, self.plan.action, deploy=self.plan.deploy)

    @property
    def image(self) -> str:
        """The image that is shown: the override, else the default."""
        return self.made.image if self.plan.image is not None else self.default_image

    @cached_property
    def compute(self) -> ComputeShape:
        plan = self.plan
        return compute_shape(self.metadata, self.skill.info, plan.gpus, plan.nodes, plan.specs)

    @cached_property
    def default_gpus(self) -> int | None:
        """The suggestion; there is none before the platform is known."""
        if not self.platform:
            return None
        suggested = suggested_gpus(self.platform, self.backend_type)
        return suggested if suggested or self._can_do_without_gpus else 1

    @property
    def _can_do_without_gpus(self) -> bool:
        try:
            self.plan.set(gpus=0).facts.made  # noqa: B018 - looked at, not used
        except SpecError:
            return False
        return True

    @property
    def compute_keys(self) -> list[str]:
        """Where the spec of this action has the numbers of GPUs and nodes."""
        shape = self.compute
        places = [
            place
            for key in (shape.gpu_key, shape.node_key)
            for place in places_of_count(self.plan.action, key)
        ]
        return [place for place in places if place and holds(self.made.specs, parsed(place))]

    @property
    def nodes(self) -> int:
        if self.compute.nodes is not None:
            return self.compute.nodes
        return suggested_nodes(self.platform) if self.platform else 1

    @cached_property
    def credentials(self) -> list[Credential]:
        """What this launch cannot do without."""
        results = [self.plan.results] if self.plan.results else []
        situation = Situation(
            addresses=(*self.paths.values(), *results),
            image=self.image if self.uses_images else "",
            model_wants=tuple(self.made.required_credentials),
            job_has=frozenset(name for name, value in self.plan.env_vars.items() if value.strip()),
        )
        definitions = self.manifest.get("credential_definitions") or {}
        return needed_credentials(self.platform, definitions, situation)

    @property
    def monitor(self) -> bool:
        wanted = self.plan.monitor
        return self._defaults["long_running_enabled"] if wanted is None else wanted

    @property
    def status_interval_minutes(self) -> float:
        wanted = self.plan.status_interval_minutes
        return self._defaults["status_interval_minutes"] if wanted is None else wanted

    @property
    def _defaults(self) -> dict[str, Any]:
        return prompt_defaults(self.manifest)


def _declared(inputs: Mapping[str, Any], key: str) -> Any:
    return inputs.get(key) or {}


def _is_file(declared: Any) -> bool:
    return isinstance(declared, Mapping) and declared.get("type") == "file"


def _folder(address: str) -> str:
    """The path of the file system that an address means; "" for one elsewhere."""
    in_place = address.startswith("/") or scheme_of(address) == "file"
    return local_path(address).rstrip("/") if in_place else ""
