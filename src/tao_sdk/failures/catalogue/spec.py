"""Specs, configuration files and command lines."""

from __future__ import annotations

from tao_sdk.failures.cause import Cause, raised
from tao_sdk.failures.err_class import ErrClass

CAUSES = (
    Cause(
        id="spec-unknown-key",
        err_class=ErrClass.PROGRAM,
        cause="the spec has a key that the program does not know: {key}",
        suggestion="correct or remove it; the schema of the action lists the keys there are",
        log=(
            r"^Could not override '(?P<key>[^'\n]{1,160})'",
            raised(
                r"Config(?:Key|Attribute)Error",
                r"(?:Error merging .{1,160}\n)?Key '(?P<key>[^'\n]{1,160})' (?:is )?not in ",
            ),
            r"^Key '(?P<key>[^'\n]{1,160})' (?:is not in struct|not in '\w+')",
            raised(
                "ParseError",
                r"\d+:\d+ : .{0,20}Message type \"[\w.]+\" has no field named \"(?P<key>[\w.]+)\"",
            ),
            r"^(?P<key>[\w.]{1,100})\n {1,4}Extra inputs are not permitted",
            raised(
                "TypeError",
                r"\S{0,80}__init__\(\) got an unexpected keyword argument "
                r"'(?P<key>\w+)'",
            ),
        ),
        specificity=70,
        sample="Could not override 'train.optim.lrr'.\nTo append to your config use "
        "+train.optim.lrr=1\nKey 'lrr' not in 'OptimConfig'",
    ),
    Cause(
        id="spec-missing-value",
        err_class=ErrClass.PROGRAM,
        cause="the spec lacks a value that the program must have[: {key}]",
        suggestion="give it a value in the spec (??? stands for a missing one)",
        log=(
            raised(
                "MissingMandatoryValue",
                r"(?:Missing mandatory value: (?P<key>[\w.]{1,160})|.{0,160})",
            ),
            r"^(?P<key>[\w.]{1,100})\n {1,4}(?:Field required|field required)",
        ),
        specificity=75,
        sample="omegaconf.errors.MissingMandatoryValue: Missing mandatory value: train.results_dir",
    ),
    Cause(
        id="spec-wrong-type",
        err_class=ErrClass.PROGRAM,
        cause="a value in the spec is of the wrong kind: {message}",
        suggestion="correct that value; mind quotes ('1' is text) and exponents (1e-4 without a "
        "dot is text in YAML: write 1.0e-4)",
        log=(
            raised(
                "ValidationError",
                r"(?P<message>(?:Value|Invalid value|Cannot convert|Cannot assign|Object of)"
                r"[^\n]{1,160})",
            ),
            r"^(?P<message>Value '[^'\n]{0,100}' of type '\w+' could not be converted to \w+)",
            r"^(?P<message>Invalid value '[^'\n]{0,100}', expected one of [^\n]{1,100})",
            r"^(?P<key>[\w.]{1,100})\n {1,4}(?P<message>Input should be [^\n]{1,120})",
        ),
        specificity=70,
        sample="Error merging override train.num_epochs=abc\nValue 'abc' of type 'str' could not "
        "be converted to Integer",
    ),
    Cause(
        id="spec-interpolation",
        err_class=ErrClass.PROGRAM,
        cause="the spec refers to something that is not there: {key}",
        suggestion="define it, or correct the ${...} that names it",
        log=(
            raised("InterpolationKeyError", r"Interpolation key '(?P<key>[^'\n]{1,160})' not"),
            raised(
                "InterpolationResolutionError|UnsupportedInterpolationType",
                r"(?P<key>[^\n]{1,160})",
            ),
        ),
        specificity=72,
        sample="omegaconf.errors.InterpolationKeyError: Interpolation key 'model.backbone' not "
        "found",
    ),
    Cause(
        id="spec-file-missing",
        err_class=ErrClass.PROGRAM,
        cause="the program does not find its spec[: {name}]",
        suggestion="check the path and name given with -e, --config-path and --config-name",
        log=(
            r"^Cannot find primary config '(?P<name>[^'\n]{1,160})'",
            r"^Primary config (?:directory|module) (?:'(?P<name>[^'\n]{1,160})' )?not found",
            raised("MissingConfigException", r"(?P<name>[^\n]{1,120})"),
            r"^In '[^'\n]{1,100}': Could not find '(?P<name>[^'\n]{1,160})'",
        ),
        specificity=70,
        sample="Cannot find primary config 'train'. Check that it's in your config search path.",
    ),
    Cause(
        id="spec-unreadable",
        err_class=ErrClass.PROGRAM,
        cause="the spec is not valid YAML, TOML or JSON: {message}",
        suggestion="mind indentation (spaces, no tabs), colons and brackets near the line it names",
        log=(
            raised(
                "ScannerError|ParserError|ComposerError|ConstructorError",
                r"(?P<message>(?:while (?:scanning|parsing|constructing)|mapping values)"
                r"[^\n]{0,80}(?:\n  in [^\n]{1,160})?)",
            ),
            raised("TOMLDecodeError|TomlDecodeError", r"(?P<message>[^\n]{1,160})"),
            raised("ParseError", r"(?P<message>\d+:\d+ : [^\n]{1,160})"),
        ),
        specificity=66,
        sample="yaml.parser.ParserError: while parsing a block mapping\n"
        '  in "/specs/train.yaml", line 1, column 1',
    ),
    Cause(
        id="arguments-wrong",
        err_class=ErrClass.PROGRAM,
        cause="the command line is wrong: {message}",
        suggestion="correct the command; the usage line in the log shows what it takes",
        log=(
            r"^\S{1,100}(?: \w+)?: error: (?P<message>(?:unrecognized arguments|the following "
            r"arguments are required|argument [^\n]{1,60}: |ambiguous option)[^\n]{0,160})",
            r"^Error: (?P<message>(?:No such (?:option|command)|Missing (?:option|argument|param)|"
            r"Invalid value for|Got unexpected extra argument)[^\n]{0,160})",
            r"^\S{1,100}: (?P<message>(?:unrecognized|invalid|unknown) option[^\n]{0,100})",
        ),
        only_with=(1, 2, 64, 255),
        specificity=72,
        sample="usage: train.py [-h] --lr LR\n"
        "train.py: error: unrecognized arguments: --learning-rate 2",
    ),
)
