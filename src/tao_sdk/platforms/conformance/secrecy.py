"""Secrets stay secret, and hostile text stays text."""

from __future__ import annotations

import logging
import traceback

import pytest

from tao_sdk.errors import SecretExposureError, ValidationError
from tao_sdk.platforms.conformance.lab import Lab, eventually, visible_command_lines

LISTED = "canary-listed-6b1f0e2d"
UNLISTED = "canary-unlisted-93ac7745"
PRESIGNED = (
    "https://bucket.example/data.tar?X-Amz-Credential=x&X-Amz-Signature=canary51d0c8&X-Amz-Date=1"
)
CANARIES = (LISTED, UNLISTED, "canary51d0c8")


def find_canaries(texts: list[tuple[str, str]]) -> list[str]:
    return [
        f"{canary} in {where}" for where, text in texts for canary in CANARIES if canary in text
    ]


class TestSecrets:
    # seed 000.3
    def test_no_artefact_holds_a_secret(self, lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        env = {"HF_TOKEN": LISTED, "SOME_PLAIN_NAME": UNLISTED, "DATA_URL": PRESIGNED}
        sdk = lab.sdk()
        plan = sdk.plan(**lab.job("echo up; sleep 600"), env_vars=env)
        job = sdk.submit(plan)
        eventually(lambda: "up" in sdk.get_job_logs(job.id))
        texts = [
            ("the plan", plan.render() + str(plan.to_dict()) + repr(plan)),
            ("the command lines of this machine", visible_command_lines()),
            ("our own log", caplog.text),
            ("the replicas", str(sdk.get_job_replicas(job.id))),
        ]
        job.cancel()
        texts.append(("the job", repr(job) + str(job.to_dict()) + str(job.explain())))
        texts += [
            (name, data.decode("utf-8", "replace")) for name, data in lab.readable_artefacts()
        ]
        assert len(texts) > 6, "the lab must name its artefacts"
        assert find_canaries(texts) == []

    def test_a_secret_that_a_failing_job_prints_is_not_kept_as_evidence(self, lab: Lab) -> None:
        """The job's own log is the job's own; what we store about it is not."""
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job('echo "the token is $SOME_PLAIN_NAME"; exit 3'),
            env_vars={"SOME_PLAIN_NAME": UNLISTED},
        )
        assert job.wait(timeout=90).status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert any("the token is [secret]" in line for line in analysis["evidence"])
        stored = sdk.store.get_job(job.id)
        texts = [("the analysis", str(analysis)), ("the store", str(stored))]
        texts.append(("the events", str(sdk.store.events(job.id))))
        assert find_canaries(texts) == []

    def test_the_job_itself_gets_them(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job('[ "$SOME_PLAIN_NAME" = "$(printf canary-%s unlisted-93ac7745)" ]'),
            env_vars={"SOME_PLAIN_NAME": UNLISTED},
        )
        assert job.wait(timeout=90).status == "Complete"

    @pytest.mark.parametrize(
        ("keywords", "where", "instead"),
        [
            ({"command": f"curl -H 'Authorization: {UNLISTED}'"}, "command", '"$TOKEN"'),
            ({"specs": {"model": {"key": UNLISTED}}}, "specs.model.key", '"$TOKEN"'),
            ({"specs": {"a": [{"url": PRESIGNED}]}}, "specs.a[0].url", "env_vars"),
            ({"command": f"curl '{PRESIGNED}'"}, "command", "env_vars"),
        ],
    )
    def test_visible_secrets_are_refused_before_anything_exists(
        self, lab: Lab, keywords: dict[str, object], where: str, instead: str
    ) -> None:
        sdk = lab.sdk()
        asked = {**lab.job("true"), "env_vars": {"TOKEN": UNLISTED}, **keywords}
        with pytest.raises(SecretExposureError) as caught:
            sdk.create_job(**asked)
        message = str(caught.value)
        assert message.startswith(where)
        assert instead in message
        told = "".join(traceback.format_exception(caught.value))
        assert find_canaries([("the error", message)]) == []
        assert UNLISTED not in message
        assert "canary51d0c8" not in told.splitlines()[-1]
        assert sdk.list_jobs() == []


HOSTILE = (
    "$(touch pwned)",
    "`id`",
    "a'b\"c\\d",
    "line one\nline two",
    "; rm -rf x #",
    "日本語 ☃",
    "-e --flag",
    "",
)


class TestHostileInput:
    def test_values_arrive_as_they_are(self, lab: Lab) -> None:
        sdk = lab.sdk()
        names = [f"VALUE_{number}" for number in range(len(HOSTILE))]
        script = "; ".join(f'printf "<%s>\\n" "${name}"' for name in names)
        job = sdk.create_job(**lab.job(script), env_vars=dict(zip(names, HOSTILE, strict=True)))
        assert job.wait(timeout=90).status == "Complete"
        assert sdk.get_job_logs(job.id) == "".join(f"<{value}>\n" for value in HOSTILE)

    @pytest.mark.parametrize("value", HOSTILE)
    def test_names_are_kept_as_they_are(self, lab: Lab, value: str) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("true"), network_arch=value, action=value)
        assert job.wait(timeout=90).status == "Complete"
        again = sdk.get_job(job.id)
        assert again is not None
        assert (again.network_arch, again.action) == (value, value)

    @pytest.mark.parametrize("name", ["A B", "A=B", "1A", "", "A;B", "$(x)", "A\nB", "TAO_JOB_ID"])
    def test_bad_names_are_refused(self, lab: Lab, name: str) -> None:
        sdk = lab.sdk()
        with pytest.raises(ValidationError, match="env_vars"):
            sdk.create_job(**lab.job("true"), env_vars={name: "x"})
        assert sdk.list_jobs() == []

    @pytest.mark.parametrize(
        ("keywords", "where"),
        [
            ({"command": ""}, "command"),
            ({"command": "a\x00b"}, "command"),
            ({"gpu_count": -2}, "gpu_count"),
            ({"gpu_count": "many"}, "gpu_count"),
            ({"num_nodes": 0}, "num_nodes"),
            ({"parent_job_id": "../../etc/passwd"}, "passwd"),
        ],
    )
    def test_bad_requests_are_refused(
        self, lab: Lab, keywords: dict[str, object], where: str
    ) -> None:
        sdk = lab.sdk()
        with pytest.raises(ValidationError, match=where):
            sdk.create_job(**{**lab.job("true"), **keywords})
        assert sdk.list_jobs() == []
