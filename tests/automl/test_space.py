"""The search space that is built from a training schema."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao_sdk.automl.dimensions import Choice, Real, Whole
from tao_sdk.automl.parameters import Plain
from tao_sdk.automl.space import Parameter, Space, build_space
from tao_sdk.errors import ValidationError
from tao_sdk.skills import SkillBank
from tao_sdk.skills.schema_validation import validate_spec
from tao_sdk.skills.spec_values import put, value_at


def leaf(kind: str, default: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "default": default, "automl_enabled": True, **more}


def schema(**leaves: dict[str, Any]) -> dict[str, Any]:
    """A schema whose leaves are named by dotted paths, `__` for the dot."""
    root: dict[str, Any] = {"type": "object", "properties": {}}
    for name, node in leaves.items():
        *sections, last = name.split("__")
        here = root
        for section in sections:
            here = here["properties"].setdefault(section, {"type": "object", "properties": {}})
        here["properties"][last] = node
    return root


def spec_of(node: dict[str, Any]) -> Any:
    if "properties" not in node:
        return copy.deepcopy(node.get("default"))
    return {name: spec_of(child) for name, child in node["properties"].items()}


def space(*, given: dict[str, Any] | None = None, **leaves: dict[str, Any]) -> Space:
    tree = schema(**leaves)
    return build_space(tree, spec_of(tree), **(given or {}))


def only(found: Space) -> Parameter:
    [parameter] = found.parameters
    return parameter


def axis(found: Space) -> Any:
    [dimension] = found.dimensions.values()
    return dimension


class TestRanges:
    def test_bounds_of_the_schema_are_kept(self) -> None:
        found = space(train__dropout=leaf("float", 0.1, minimum=0.0, maximum=0.5))
        assert axis(found) == Real(0.0, 0.5)
        assert only(found).notes == ()

    def test_wide_bounds_are_searched_on_a_log_scale(self) -> None:
        assert axis(space(train__margin=leaf("float", 1.0, minimum=0.01, maximum=10.0))).log
        assert not axis(space(train__margin=leaf("float", 1.0, minimum=0.5, maximum=10.0))).log

    @pytest.mark.parametrize("low", [0.0, None, -math.inf])
    @pytest.mark.parametrize("high", [math.inf, None])
    def test_a_learning_rate_gets_bounds_around_its_default(self, low: Any, high: Any) -> None:
        found = space(train__lr=leaf("float", 3e-4, minimum=low, maximum=high))
        assert axis(found) == Real(pytest.approx(1e-5), pytest.approx(9e-3), log=True)  # type: ignore[arg-type]
        assert len(only(found).notes) == 2

    def test_a_finite_bound_of_a_learning_rate_stays(self) -> None:
        found = axis(space(train__lr=leaf("float", 3e-4, minimum=0.0, maximum=0.01)))
        assert (found.high, found.log) == (0.01, True)

    def test_a_learning_rate_is_known_by_its_name_too(self) -> None:
        found = axis(space(train__lr=leaf("float", 1.0, minimum=0.0, maximum=math.inf)))
        assert (found.low, found.high, found.log) == (pytest.approx(1 / 30), 30.0, True)
        decay = axis(space(train__lr_decay=leaf("float", 0.1, minimum=0.0, maximum=1.0)))
        assert decay == Real(0.0, 1.0)

    def test_momentum_without_a_limit_stays_below_one(self) -> None:
        found = axis(space(train__momentum=leaf("float", 0.9, minimum=0.0, maximum=math.inf)))
        assert found == Real(0.0, pytest.approx(0.99))  # type: ignore[arg-type]

    def test_whole_numbers_without_a_limit_go_to_twice_the_default(self) -> None:
        assert axis(space(model__layers=leaf("int", 6, minimum=1))) == Whole(1, 12)

    def test_no_range_and_no_default_that_gives_one(self) -> None:
        tree = schema(
            train__lr=leaf("float", 1e-3), train__shift=leaf("float", 0.0, minimum=-math.inf)
        )
        found = build_space(tree, spec_of(tree))
        assert only(found).path == "train.lr"
        assert "gives it no range" in found.excluded["train.shift"]
        with pytest.raises(ValidationError, match=r"train\.shift.*custom_param_ranges"):
            build_space(tree, spec_of(tree), names=["train.shift"])


class TestKinds:
    def test_powers(self) -> None:
        found = space(model__r=leaf("int", 8, minimum=1, maximum=256, math_cond="^ 2"))
        assert found.default_point() == {"log2(model.r)": 3}
        assert found.values({"log2(model.r)": 5}) == {"model.r": 32}
        assert axis(found) == Whole(0, 8)

    def test_multiples(self) -> None:
        found = space(model__dim=leaf("int", 256, minimum=60, maximum=1000, math_cond="/ 8"))
        assert axis(found) == Whole(64, 1000, step=8)

    def test_switches_and_options(self) -> None:
        assert axis(space(train__ema=leaf("bool", False))) == Choice((False, True))
        kind = leaf("categorical", "a", enum=["a", "b"], option_weights=[1, 3])
        found = axis(space(train__kind=kind))
        assert found == Choice(("a", "b"), (1.0, 3.0))
        assert [found.value_at(place) for place in (0.0, 0.24, 0.26, 1.0)] == ["a", "a", "b", "b"]

    def test_lists_have_an_axis_for_each_item(self) -> None:
        found = space(train__betas=leaf("list", [0.9, 0.999]))
        assert list(found.dimensions) == ["train.betas[0]", "train.betas[1]"]
        assert found.values(found.default_point()) == {"train.betas": [0.9, 0.999]}

    def test_three_equal_items_share_one_axis(self) -> None:
        node = leaf("list_3", [8, 8, 8], minimum=[2, 2, 2], maximum=[32, 32, 32])
        found = space(model__size=node)
        assert found.values({"model.size[0]": 16}) == {"model.size": [16, 16, 16]}

    def test_subsets_and_optional_lists(self) -> None:
        found = space(model__layers=leaf("subset_list", ["a"], enum=["a", "b"]))
        assert found.default_point() == {"model.layers[a]": True, "model.layers[b]": False}
        optional = space(model__freeze=leaf("optional_list", [1, 2]))
        assert axis(optional) == Choice((None, [1, 2]))


class TestRelations:
    LEAVES = {  # noqa: RUF012 - never changed
        "data__crop_min": leaf("int", 384, minimum=32, maximum=math.inf),
        "data__crop_max": leaf(
            "int", 600, minimum=32, maximum=700, math_cond="> depends_on",
            depends_on="data.crop_min",
        ),
    }  # fmt: skip

    def test_the_axis_is_a_share_of_the_allowed_interval(self) -> None:
        found = space(**self.LEAVES)
        assert [one.path for one in found.parameters] == ["data.crop_min", "data.crop_max"]
        share = "data.crop_max:share_above(data.crop_min)"
        for other in (32, 500, 699):
            for place in (0.0, 0.3, 1.0):
                values = found.values({"data.crop_min": other, share: place})
                assert other < values["data.crop_max"] <= 700
        assert found.values(found.default_point())["data.crop_max"] == 600

    def test_the_other_value_leaves_room(self) -> None:
        found = space(**self.LEAVES)
        assert found.dimensions["data.crop_min"] == Whole(32, 699)
        assert "so that data.crop_max has room" in found.parameters[0].notes[-1]

    def test_relations_that_cannot_hold_are_refused(self) -> None:
        leaves = {**self.LEAVES, "data__crop_min": leaf("int", 800, minimum=750, maximum=900)}
        with pytest.raises(ValidationError, match=r"data\.crop_max must be above data\.crop_min"):
            space(**leaves)

    def test_parameters_that_depend_on_each_other_are_refused(self) -> None:
        def related(other: str) -> dict[str, Any]:
            return leaf("int", 5, minimum=1, maximum=9, math_cond="> depends_on", depends_on=other)

        with pytest.raises(ValidationError, match="depend on each other"):
            space(a__x=related("a.y"), a__y=related("a.x"))


class TestSelection:
    def test_what_is_left_out_has_a_reason(self) -> None:
        found = space(
            train__lr=leaf("float", 1e-3),
            train__num_epochs=leaf("int", 10, minimum=1),
            train__seed=leaf("int", 1, minimum=0),
            dataset__workers=leaf("int", 8, minimum=1),
            dataset__val_dataset__flip=leaf("float", 0.5, minimum=0.0, maximum=1.0),
            distill__teacher=leaf("bool", False),
        )
        assert [one.path for one in found.parameters] == ["train.lr"]
        assert len(found.excluded) == 5
        assert "how trials are evaluated" in found.excluded["dataset.val_dataset.flip"]

    def test_naming_a_parameter_takes_it(self) -> None:
        leaves = {"train__lr": leaf("float", 1e-3), "train__num_epochs": leaf("int", 10, minimum=1)}
        found = space(given={"names": ["train.num_epochs"]}, **leaves)
        assert only(found).path == "train.num_epochs"

    def test_what_the_spec_does_not_have_is_not_searched(self) -> None:
        tree = schema(train__lr=leaf("float", 1e-3), train__other=leaf("float", 1e-3))
        found = build_space(tree, {"train": {"lr": 1e-3}})
        assert found.excluded == {"train.other": "is not in the spec"}

    def test_a_switch_that_is_off_makes_its_section_inactive(self) -> None:
        found = space(
            augment__color__enable=leaf("bool", True),
            augment__color__hue=leaf("float", 0.25, minimum=0.0, maximum=0.5),
            augment__flip=leaf("float", 0.5, minimum=0.0, maximum=1.0),
        )
        point = {"augment.color.enable": False, "augment.color.hue": 0.4, "augment.flip": 0.1}
        assert found.inactive(point) == {"augment.color.hue"}
        assert found.values(point)["augment.color.hue"] == 0.25

    def test_limits_are_bounds(self) -> None:
        leaves = {"train__batch_size": leaf("int", 8, minimum=1)}
        found = space(given={"limits": {"train.batch_size": 12}}, **leaves)
        assert axis(found) == Whole(1, 12)
        with pytest.raises(ValidationError, match="at most"):
            space(
                given={"limits": {"train.batch_size": 0}, "names": ["train.batch_size"]}, **leaves
            )


class TestBadInput:
    LEAVES = {"train__lr": leaf("float", 1e-3), "train__closed": {"type": "float", "default": 1.0}}  # noqa: RUF012 - never changed

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"names": ["train.lrr"]}, "did you mean 'train.lr'"),
            ({"custom_ranges": {"train.lrr": {}}}, "did you mean 'train.lr'"),
            ({"custom_ranges": {"train.lr": {"valid_mn": 1}}}, "did you mean 'valid_min'"),
            ({"custom_ranges": {"train.lr": 3}}, "must be fields"),
            ({"custom_ranges": {"train.lr": {"valid_min": 0.1}}}, "its value in the spec, 0.001"),
            ({"custom_ranges": {"train.lr": {"valid_min": 0, "log": True}}}, "lower bound above"),
            (
                {"custom_ranges": {"train.lr": {"valid_min": 2, "valid_max": 1}}},
                "lower bound 2 is above",
            ),
            ({"names": []}, "nothing to search"),
        ],
    )
    def test_it_is_refused_with_the_key_and_a_suggestion(
        self, given: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ValidationError, match=message):
            space(given=given, **self.LEAVES)

    def test_a_custom_range_opens_a_closed_parameter(self) -> None:
        custom = {"train.closed": {"valid_min": 0.5, "valid_max": 2.0}}
        found = space(given={"custom_ranges": custom, "names": ["train.closed"]}, **self.LEAVES)
        assert axis(found) == Real(0.5, 2.0)


def banks() -> Iterator[tuple[SkillBank, str]]:
    for path in (None, os.environ.get("TAO_TEST_BANK")):
        if path is None or Path(path).is_dir():
            bank = SkillBank(path)
            for model in bank.list_models():
                if bank.get_schema(model, "train"):
                    yield bank, model


@pytest.mark.parametrize(("bank", "model"), [pytest.param(*one, id=one[1]) for one in banks()])
class TestBanks:
    """Every training schema of the banks."""

    def test_the_default_is_a_point_of_the_space(self, bank: SkillBank, model: str) -> None:
        found = of_bank(bank, model)
        values = found.values(found.default_point())
        for parameter in found.parameters:
            default = parameter.default
            if isinstance(default, float):
                assert values[parameter.path] == pytest.approx(default, rel=1e-9, abs=1e-5)
            else:
                assert values[parameter.path] == default

    @settings(max_examples=25, deadline=None)
    @given(places=st.data())
    def test_whatever_is_proposed_is_valid(
        self, bank: SkillBank, model: str, places: st.DataObject
    ) -> None:
        found = of_bank(bank, model)
        schema = bank.get_schema(model, "train") or {}
        before = set(map(str, validate_spec(found.spec, schema, "train")))
        point = {
            name: dimension.value_at(places.draw(st.floats(0, 1), name))
            for name, dimension in found.dimensions.items()
        }
        spec = copy.deepcopy(dict(found.spec))
        values = found.values(point)
        for path, value in values.items():
            put(spec, path, value)
        assert set(map(str, validate_spec(spec, schema, "train"))) <= before
        # What is stored is what ran: the values lead back to a point that gives the same values.
        again = found.values(found.point(values))
        for parameter in found.parameters:
            ran, stored = values[parameter.path], again[parameter.path]
            assert stored == (pytest.approx(ran) if isinstance(ran, (float, list)) else ran)
            assert value_at(spec, parameter.path) == ran


def of_bank(bank: SkillBank, model: str) -> Space:
    return build_space(
        bank.get_schema(model, "train") or {}, bank.get_default_specs(model, "train")
    )


def test_plain_parameters_describe_their_range() -> None:
    assert Plain(Real(1e-5, 1e-2, log=True)).describe() == "1e-05 to 0.01, log"
    assert Plain(Whole(8, 64, 8)).describe() == "8 to 64, steps of 8"
    assert Plain(Choice(("a", True))).describe() == "a, True"


@pytest.mark.parametrize("bound", ["1e-5", [1e-5, "x"], math.inf, math.nan, True, None])
def test_a_bound_that_is_no_number_is_refused(bound: Any) -> None:
    """Or the range that is searched is another one than the one that was asked for."""
    with pytest.raises(ValidationError, match=r"train\.lr: valid_min must be a finite number"):
        space(
            train__lr=leaf("float", 1e-3, minimum=0.0, maximum=1.0),
            given={"custom_ranges": {"train.lr": {"valid_min": bound}}},
        )


@pytest.mark.parametrize(
    "odd",
    [
        leaf("float", "1e-3", minimum=0.0, maximum=1.0),
        leaf("int", 1, minimum=0.2, maximum=0.8),
        leaf("int", 2, minimum=1, maximum=4, math_cond="> 4"),
        leaf("int", 2, minimum=1, math_cond="/ 0.5"),
        leaf("int", 2, minimum=1, maximum=10**400),
        leaf("optional_list", [1, 2], enum=[1, 2, 3]),
        leaf("subset_list", "a", enum=["a", "b"]),
    ],
    ids=str,
)
def test_what_cannot_be_searched_is_left_out_or_works(odd: dict[str, Any]) -> None:
    found = space(train__x=odd, train__y=leaf("bool", default=True))
    assert found.values(found.default_point())["train.y"] is True


def test_bounds_of_a_log_scale_may_be_any_floats() -> None:
    axis = Real(1e-320, 1.0, log=True)
    assert axis.position_of(1.0) == 1.0
