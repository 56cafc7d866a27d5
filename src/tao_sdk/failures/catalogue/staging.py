"""What our own runner says when it cannot bring the inputs or deliver the results.

Its messages name the place and what to do, so they are shown as they are. They count even where
they speak of trying again: it has tried.
"""

from __future__ import annotations

from tao_sdk.failures.cause import Cause
from tao_sdk.failures.err_class import ErrClass

_ERROR = r"^tao-runner: error: (?:staging failed in [^:\n]{1,100}: )?"
_UNDELIVERED = r"[\d,]{1,12} of the results were not delivered"


def _says(*words: str) -> tuple[str, ...]:
    """An error of the runner that has one of these in it."""
    about = rf"(?!{_UNDELIVERED})(?=[^\n]{{0,600}}?(?:{'|'.join(words)}))"
    return (rf"{_ERROR}(?P<message>{about}[^\n]{{1,400}})",)


CAUSES = (
    Cause(
        id="staging-credentials",
        err_class=ErrClass.CREDENTIAL,
        cause="the credentials for an input are missing or were refused: {message}",
        suggestion="set what the message names where you submit (S3: ACCESS_KEY and SECRET_KEY, "
        "Hugging Face: HF_TOKEN, NGC: NGC_KEY), and check what it may read",
        log=_says(
            "no credentials for the object store",
            "is not set, though the other half of the pair is",
            r": 40[13] ",
            r"access denied \(40[13]\)",
            "is gated: accept its licence",
            "the registry refused NGC_KEY",
            "not public; set NGC_KEY",
            r"^AWS_(?:PROFILE|ROLE_ARN|WEB_IDENTITY|CONTAINER)\w*=",
            "instead of credentials",
            "no whole set of credentials",
        ),
        even_as_warning=True,
        specificity=96,
        sample="tao-runner: error: s3://bucket/data: 403 AccessDenied Access Denied; these "
        "credentials may not do this; check the policy of the bucket and user",
    ),
    Cause(
        id="staging-not-found",
        err_class=ErrClass.DATA,
        cause="an input is not there: {message}",
        suggestion="check the URI in the spec, the bucket and its endpoint, and that what writes "
        "it has finished",
        log=_says(
            ": there is no ",
            r": 404 ",
            r" has no \S{1,300} \([\d,]{1,12} of [\d,]{1,12} files that",
            ": nothing matches ",
            "the Hub has no (?:model|dataset)",
            "has no branch, tag or commit",
            "has no version ",
        ),
        even_as_warning=True,
        specificity=95,
        sample="tao-runner: error: s3://bucket/data/train: there is no such object or folder; "
        "check the name and S3_ENDPOINT_URL",
    ),
    Cause(
        id="staging-no-space",
        err_class=ErrClass.CAPACITY,
        cause="the inputs do not fit onto the disk: {message}",
        suggestion="set TAO_RESULTS_ROOT or TAO_WORK_ROOT to a larger disk, or fetch less "
        "(selective inputs)",
        log=_says("[Nn]o space left", "Disk quota exceeded", "File too large"),
        even_as_warning=True,
        specificity=97,
        sample="tao-runner: error: s3://bucket/a.tar: no space left in /results/j/inputs for "
        "1073741824 bytes (52428800 are free). Free some, or set TAO_WORK_ROOT to a larger disk",
    ),
    Cause(
        id="staging-unreachable",
        err_class=ErrClass.INFRA,
        cause="an input's store could not be reached, or kept failing: {message}",
        suggestion="run again, what has arrived is kept; if it comes back, check S3_ENDPOINT_URL "
        "and the way from the node to the store",
        log=_says(
            r"\(tried \d{1,4} times\)",
            "keeps answering",
            "it was asked again and again",
            "gave up after [^\n]{1,40} of waiting for",
            "another rank has taken over",
        ),
        even_as_warning=True,
        specificity=94,
        sample="tao-runner: error: s3://bucket/data: cannot reach store:9000 (Connection refused) "
        "(tried 10 times)",
    ),
    Cause(
        id="staging-bad-data",
        err_class=ErrClass.DATA,
        cause="an input cannot be used as it is: {message}",
        suggestion="correct it in its store, as the message says, then submit again",
        log=_says(
            r"archive /",
            "what arrives is not what the store has",
            "changed while it was downloaded",
            "is not a path below the folder",
            "no record has a file name",
            "not valid JSON",
            "rename (?:it|one|the object)",
        ),
        even_as_warning=True,
        specificity=93,
        sample="tao-runner: error: archive /results/j/inputs/d/a.tar.gz is damaged, cut short or "
        "of an unknown kind (unexpected end of data); upload it again",
    ),
    Cause(
        id="runner-refused",
        err_class=ErrClass.PROGRAM,
        cause="the runner did not start the command: {message}",
        suggestion="correct what the message names, then submit again",
        log=(rf"{_ERROR}(?P<message>(?!stopped by SIG|{_UNDELIVERED})[^\n]{{1,400}})",),
        even_as_warning=True,
        specificity=90,
        sample="tao-runner: error: specs: wandb.key: the variable WANDB_KEY is not set in the "
        "container: pass it in env_vars",
    ),
    Cause(
        id="runner-no-python",
        err_class=ErrClass.IMAGE,
        cause="the image lacks what the runner needs: {message}",
        suggestion="choose an image with Python 3.8 or newer, or submit without inputs and outputs",
        log=_says(
            "the image has neither python3 nor python",
            r"the image has Python \d[\d.]*: 3\.8 or newer is needed",
            "the image has a Python without",
        ),
        even_as_warning=True,
        specificity=98,
        sample="tao-runner: error: the image has neither python3 nor python 3: 3.8 or newer is "
        "needed",
    ),
    Cause(
        id="delivery-denied",
        err_class=ErrClass.CREDENTIAL,
        cause="the command succeeded, but its results were refused: {message}",
        suggestion="let the key write to the destination (PutObject), then run again; a training "
        "goes on from what was delivered before",
        log=(
            rf"^tao-runner: error: (?P<message>{_UNDELIVERED}[^\n]{{0,600}}?"
            r"(?:: 40[13] |no credentials|the other half of the pair)[^\n]{0,200})",
        ),
        only_with=(74,),
        even_as_warning=True,
        specificity=96,
        sample="tao-runner: error: 2 of the results were not delivered: /results/j/out/a.pth "
        "(s3://bucket/results/j/out/a.pth: 403 AccessDenied Access Denied)",
    ),
    Cause(
        id="delivery-failed",
        err_class=ErrClass.INFRA,
        cause="the command succeeded, but not all of its results arrived: {message}",
        suggestion="check the store, then run again; a training goes on from what was delivered "
        "before",
        log=(rf"^tao-runner: error: (?P<message>{_UNDELIVERED}[^\n]{{0,400}})",),
        only_with=(74,),
        even_as_warning=True,
        specificity=95,
        sample="tao-runner: error: 1 of the results were not delivered: /results/j/out/a.pth "
        "(s3://bucket/results/j/out/a.pth: 500 InternalError (tried 10 times))",
    ),
)
