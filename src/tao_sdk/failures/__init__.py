"""Evidence in, explanation out: pure, and the same shape on every platform."""

from tao_sdk.failures.err_class import ErrClass
from tao_sdk.failures.evidence import Evidence, ReplicaEvidence
from tao_sdk.failures.explain import explain

__all__ = ["ErrClass", "Evidence", "ReplicaEvidence", "explain"]
