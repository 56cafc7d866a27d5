"""Redaction of evidence, above the seam."""

from __future__ import annotations

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.failures import Evidence, ReplicaEvidence
from tao_sdk.platforms.backend import JobIdentity, JobRef
from tao_sdk.platforms.common.credentials import values_in
from tao_sdk.platforms.evidence import RawEvidence, ask_each, redacted
from tao_sdk.secrets import Secret

OWN, KNOWN = "canary-of-the-job", "canary-of-the-client"


def test_every_text_loses_the_values_to_hide() -> None:
    told = f"{OWN} and {KNOWN}"
    raw = RawEvidence(
        Evidence(
            exit_code=3,
            reason=told,
            log_tail=told,
            replicas=(ReplicaEvidence(0, exit_code=3, reason=told),),
        ),
        [Secret(OWN)],
    )
    found = redacted(raw, [Secret(KNOWN)])
    assert found.exit_code == 3
    for text in (found.reason, found.log_tail, found.replicas[0].reason):
        assert text == "[secret] and [secret]"
    assert OWN not in repr(raw)


def test_passwords_in_addresses_are_hidden_without_being_known() -> None:
    found = redacted(RawEvidence(Evidence(log_tail="GET https://me:pass@host/x")))
    assert "pass" not in found.log_tail


def test_a_job_that_cannot_be_asked_about_is_left_out() -> None:
    jobs = [JobRef(JobIdentity(name, "token"), {}) for name in ("one", "two")]

    def ask(job: JobRef) -> RawEvidence:
        if job.job_id == "one":
            raise BackendUnreachableError("its host is down")
        return RawEvidence(Evidence(exit_code=1))

    assert ask_each(jobs, ask) == {"two": RawEvidence(Evidence(exit_code=1))}


def test_values_of_a_staged_environment() -> None:
    assert values_in("export A='with space'\nexport B=\ntao_boot=whole\n") == [
        Secret("with space"),
        Secret("whole"),
    ]
