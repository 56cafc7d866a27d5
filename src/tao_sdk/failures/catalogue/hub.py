"""Credentials and the places data comes from: S3, Hugging Face, NGC, Git, trackers."""

from __future__ import annotations

from tao_sdk.failures.cause import Cause, raised
from tao_sdk.failures.err_class import ErrClass

_ANY = r"\w*(?:Error|Exception|\w)"


def _s3(codes: str) -> tuple[str, ...]:
    """An S3 error code as boto3, the AWS command line and S3 itself print it."""
    call = r"An error occurred \(" + f"(?:{codes})" + r"\) when calling the (?P<operation>\w+) "
    return (
        raised(r"\w+", rf"(?:Failed to (?:up|down)load .{{1,400}}: )?{call}"),
        rf"^(?:fatal error|(?:up|down)load failed: .{{1,400}}?):? {call}",
        rf"<Code>(?:{codes})</Code>",
    )


CAUSES = (
    Cause(
        id="s3-no-credentials",
        err_class=ErrClass.CREDENTIAL,
        cause="no S3 credentials are set in the job",
        suggestion="pass AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), or "
        "give the node a role",
        log=(
            raised("NoCredentialsError|PartialCredentialsError|CredentialRetrievalError"),
            r"Unable to locate credentials\.? You can configure credentials",
            raised("DefaultCredentialsError"),
        ),
        specificity=75,
        sample="botocore.exceptions.NoCredentialsError: Unable to locate credentials",
    ),
    Cause(
        id="s3-token-expired",
        err_class=ErrClass.CREDENTIAL,
        cause="the S3 session token has expired",
        suggestion="get new temporary credentials that outlive the job, and submit again",
        log=(*_s3("ExpiredToken|ExpiredTokenException|RequestExpired|TokenRefreshRequired"),),
        specificity=80,
        sample="botocore.exceptions.ClientError: An error occurred (ExpiredToken) when calling the "
        "GetObject operation: The provided token has expired.",
    ),
    Cause(
        id="s3-bad-credentials",
        err_class=ErrClass.CREDENTIAL,
        cause="S3 does not accept the access key or its signature",
        suggestion="check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (a stray space or an old "
        "key), and the endpoint they belong to",
        log=(*_s3("InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|InvalidClientTokenId"),),
        specificity=80,
        sample="botocore.exceptions.ClientError: An error occurred (SignatureDoesNotMatch) when "
        "calling the PutObject operation: The request signature we calculated does not match",
    ),
    Cause(
        id="s3-denied",
        err_class=ErrClass.CREDENTIAL,
        cause="S3 denied access (403)[ in {operation}]",
        suggestion="let this key list, read and write the bucket (ListBucket, GetObject, "
        "PutObject); check bucket and prefix",
        log=(*_s3("AccessDenied|403|AllAccessDisabled|AccountProblem"),),
        specificity=78,
        sample="botocore.exceptions.ClientError: An error occurred (403) when calling the "
        "HeadObject operation: Forbidden",
    ),
    Cause(
        id="s3-not-found",
        err_class=ErrClass.DATA,
        cause="no such bucket or object in S3 (404)[ in {operation}]",
        suggestion="check bucket, prefix and spelling, and that the upload before it was finished",
        log=(
            *_s3("NoSuchKey|NoSuchBucket|404|NoSuchUpload"),
            raised("ParamValidationError", r"Parameter validation failed:\nInvalid bucket name"),
        ),
        specificity=78,
        sample="botocore.errorfactory.NoSuchKey: An error occurred (NoSuchKey) when calling the "
        "GetObject operation: The specified key does not exist.",
    ),
    Cause(
        id="s3-slow-down",
        err_class=ErrClass.INFRA,
        cause="S3 kept asking to slow down, or failed itself, until the retries were used up",
        suggestion="run again, with fewer parallel transfers or fewer jobs on the same prefix",
        log=(*_s3("SlowDown|503|ServiceUnavailable|InternalError|500|RequestTimeout|Throttling"),),
        specificity=78,
        sample="botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the "
        "GetObject operation (reached max retries: 4): Please reduce your request rate.",
    ),
    Cause(
        id="s3-wrong-region",
        err_class=ErrClass.CREDENTIAL,
        cause="the bucket lives in another region or behind another endpoint[ ({region})]",
        suggestion="set AWS_REGION[ to {region}] and, for other stores than AWS, AWS_ENDPOINT_URL",
        log=(
            r"\(AuthorizationHeaderMalformed\) when calling [^\n]{0,160}expecting "
            r"'(?P<region>[\w-]+)'",
            *_s3("PermanentRedirect|IllegalLocationConstraintException|301"),
        ),
        specificity=82,
        sample="botocore.exceptions.ClientError: An error occurred (AuthorizationHeaderMalformed) "
        "when calling the GetObject operation: The authorization header is malformed; the region "
        "'us-east-1' is wrong; expecting 'eu-west-1'",
    ),
    Cause(
        id="s3-clock-skew",
        err_class=ErrClass.INFRA,
        cause="the node's clock is wrong, and S3 refuses its requests",
        suggestion="run again on another node, and have the clock of this one set (NTP)",
        log=(*_s3("RequestTimeTooSkewed"),),
        specificity=80,
        sample="botocore.exceptions.ClientError: An error occurred (RequestTimeTooSkewed) when "
        "calling the GetObject operation: The difference between the request time and the "
        "current time is too large.",
    ),
    Cause(
        id="s3-unreachable",
        err_class=ErrClass.INFRA,
        cause="the S3 endpoint cannot be reached[: {url}]",
        suggestion="check AWS_ENDPOINT_URL and that the node reaches it, then run again",
        log=(
            raised(
                "(?:EndpointConnection|ConnectTimeout|ReadTimeout|ConnectionClosed)Error",
                r"(?:Could not connect to the endpoint URL|Connect timeout on endpoint URL|"
                r"Read timeout on endpoint URL|Connection was closed before[^\n]{0,60}): "
                r"\"(?P<url>[^\"\n]{1,300})",
            ),
            r"^(?:fatal error: )?Could not connect to the endpoint URL: \"(?P<url>[^\"\n]{1,300})",
        ),
        specificity=75,
        sample="botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint "
        'URL: "http://minio:9000/tao-data?list-type=2"',
    ),
    Cause(
        id="hf-gated",
        err_class=ErrClass.CREDENTIAL,
        cause="the Hugging Face repository[ {repository}] is gated: access was not granted",
        suggestion="ask for access on its page, then pass HF_TOKEN of the account that got it",
        log=(
            raised("GatedRepoError"),
            r"Access to (?:model|dataset) (?P<repository>\S{1,120}) is restricted",
            raised("OSError", r"You are trying to access a gated repo"),
        ),
        specificity=85,
        sample="huggingface_hub.errors.GatedRepoError: 403 Client Error.\n\nCannot access gated "
        "repo for url https://huggingface.co/nvidia/x/resolve/main/config.json.",
    ),
    Cause(
        id="hf-not-found",
        err_class=ErrClass.DATA,
        cause="no such repository, revision or file on Hugging Face",
        suggestion="check the name; a private repository looks the same without HF_TOKEN",
        log=(
            raised(
                r"RepositoryNotFoundError|RevisionNotFoundError|\w*EntryNotFoundError",
                r"40[14] Client Error",
            ),
            raised("OSError", r"\S{1,160} is not a local folder and is not a valid model identif"),
            raised("DatasetNotFoundError"),
            raised("HFValidationError"),
        ),
        specificity=80,
        sample="huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error.\n\nRepository "
        "Not Found for url: https://huggingface.co/api/models/nvidia/nope.",
    ),
    Cause(
        id="hf-bad-token",
        err_class=ErrClass.CREDENTIAL,
        cause="Hugging Face does not accept the token",
        suggestion="make a new token with read access and pass it as HF_TOKEN",
        log=(
            r"^Invalid (?:credentials in Authorization header|user token|username or password)",
            raised(_ANY, r".{0,60}401.{0,40}for url:? '?https?://huggingface\.co/"),
        ),
        specificity=76,
        sample="huggingface_hub.errors.HfHubHTTPError: 401 Client Error: Unauthorized for url: "
        "https://huggingface.co/api/whoami-v2\nInvalid user token.",
    ),
    Cause(
        id="hf-rate-limit",
        err_class=ErrClass.INFRA,
        cause="Hugging Face limits how fast this address may ask",
        suggestion="run again later; pass HF_TOKEN (higher limits), or stage the files once to S3",
        log=(
            raised(_ANY, r".{0,60}429 (?:Client Error|Too Many Requests)"),
            r"^We had to rate limit (?:you|your IP)",
        ),
        specificity=84,
        sample="huggingface_hub.errors.HfHubHTTPError: 429 Too Many Requests for url: "
        "https://huggingface.co/api/models/nvidia/x/revision/main.",
    ),
    Cause(
        id="hf-offline",
        err_class=ErrClass.DATA,
        cause="a Hugging Face file is not in the cache, and offline mode is on",
        suggestion="unset HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE, or stage the files beforehand",
        log=(
            raised("OfflineModeIsEnabled"),
            r"outgoing traffic has been disabled",
        ),
        specificity=86,
        sample="huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/"
        "nvidia/x/resolve/main/config.json: offline mode is enabled.",
    ),
    Cause(
        id="hf-unreachable",
        err_class=ErrClass.INFRA,
        cause="Hugging Face cannot be reached from the job",
        suggestion="check that the node may reach huggingface.co (or set HF_ENDPOINT to a mirror), "
        "then run again",
        log=(
            raised(
                "LocalEntryNotFoundError",
                r"(?:An error happened while trying to locate|Got: \w+|.{0,60}Cannot find)",
            ),
            raised("OSError", r"We couldn't connect to '\S{1,120}' to load th"),
        ),
        specificity=72,
        sample="OSError: We couldn't connect to 'https://huggingface.co' to load this file, "
        "couldn't find it in the cached files",
    ),
    Cause(
        id="ngc-denied",
        err_class=ErrClass.CREDENTIAL,
        cause="NGC refused access ({status})",
        suggestion="make a new key on ngc.nvidia.com, pass it as NGC_KEY, and check that its org "
        "and team may use this model",
        log=(
            r"Client Error: (?P<status>40[13]) Response: ",
            r"(?P<status>Invalid API key|Missing API key|Invalid apikey)\b",
            r"(?P<status>40[13])[^\n]{0,60} for url:? '?https?://\S{0,40}ngc\.nvidia\.com/",
        ),
        specificity=80,
        sample="Client Error: 403 Response: Access Denied - Request Id: 1f2e Url: https://api.ngc."
        "nvidia.com/v2/org/nvidia/team/tao/models/dino/versions/1.0",
    ),
    Cause(
        id="ngc-not-found",
        err_class=ErrClass.DATA,
        cause="NGC does not have that model or version",
        suggestion="check org/team/model:version on ngc.nvidia.com",
        log=(
            r"Client Error: 404 Response: ",
            r"^Error: '(?P<name>[^'\n]{1,160})' could not be found\.",
            r"404[^\n]{0,60} for url:? '?https?://\S{0,40}ngc\.nvidia\.com/",
        ),
        specificity=80,
        sample="Error: 'nvidia/tao/pretrained_dino:9.9' could not be found.",
    ),
    Cause(
        id="tracker-login",
        err_class=ErrClass.CREDENTIAL,
        cause="the experiment tracker wants a login",
        suggestion="pass WANDB_API_KEY (or CLEARML_*, COMET_API_KEY), or switch the tracker off "
        "(WANDB_MODE=disabled)",
        log=(
            raised(
                "UsageError|AuthenticationError|CommError",
                r"(?:api_key not configured|No API key configured|API key must be|.{0,40}"
                r"permission denied|.{0,60}returned error 401)",
            ),
            raised(r"\w*Error", r".{0,60}CLEARML_API_\w+|Missing credentials .{0,40}clearml"),
        ),
        specificity=78,
        sample="wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key="
        "[your_api_key])",
    ),
    Cause(
        id="licence-not-accepted",
        err_class=ErrClass.CREDENTIAL,
        cause="a licence (EULA) has to be accepted first",
        suggestion="accept it where the message says: a variable such as ACCEPT_EULA=Y, a flag, or "
        "the web page of the image or model",
        log=(
            r"(?:[Yy]ou must|[Pp]lease) (?:first )?(?:accept|agree to) the .{0,80}"
            r"(?:EULA|[Ll]icen[sc]e|[Tt]erms)",
            raised("CondaToSNonInteractiveError"),
        ),
        specificity=68,
        sample="You must accept the NVIDIA Omniverse License Agreement (EULA) to proceed.",
    ),
    Cause(
        id="git-safe-directory",
        err_class=ErrClass.PROGRAM,
        cause="Git refuses a repository that belongs to another user[: {path}]",
        suggestion="git config --global --add safe.directory {path}",
        log=(r"fatal: detected dubious ownership in repository at '(?P<path>[^'\n]{1,200})'",),
        specificity=75,
        sample="fatal: detected dubious ownership in repository at '/workspace/repo'",
    ),
    Cause(
        id="git-or-ssh-login",
        err_class=ErrClass.CREDENTIAL,
        cause="Git or SSH could not log in",
        suggestion="pass a token or a key that may read that repository or host; for ssh also its "
        "host key (known_hosts)",
        log=(
            r"^fatal: Authentication failed for ",
            r"^fatal: could not read (?:Username|Password) for ",
            r"\bPermission denied \(publickey",
            r"^Host key verification failed\.",
        ),
        specificity=72,
        sample="fatal: could not read Username for 'https://github.com': terminal prompts disabled",
    ),
)
