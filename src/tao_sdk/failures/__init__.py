"""Evidence in, explanation out: pure, and the same shape on every platform."""

from tao_sdk.failures.evidence import Evidence, ReplicaEvidence
from tao_sdk.failures.explain import ErrClass, explain

__all__ = ["ErrClass", "Evidence", "ReplicaEvidence", "explain"]
