"""Images and containers: pulling, starting, mounting."""

from __future__ import annotations

from tao_sdk.failures.cause import Cause, raised
from tao_sdk.failures.err_class import ErrClass

_UNAUTHORISED = (
    r"unauthorized: (?:authentication required|[^\n]{0,80})",
    r"no basic auth credentials",
    r"\[ERROR\] URL https?://\S{1,300} returned error code: 40[13]\b",
    r"(?:failed to authorize|failed to fetch (?:oauth|anonymous) token)[^\n]{0,300}40[13] ",
    r"(?:unexpected status(?: code)?|failed with status code)[^\n]{0,200}: "
    r"40[13] (?:Unauthorized|Forbidden)",
    r"denied: (?:requested access to the resource is denied|access forbidden)",
    r"\"code\": ?\"(?:DENIED|UNAUTHORIZED)\"",
    r"insufficient_scope: authorization failed",
)
_NOT_FOUND = (
    r"manifest for (?P<image>\S{1,200}) not found",
    r"manifest unknown",
    r"pull access denied for (?P<image>\S{1,200}), repository does not exist or may require",
    r"failed to resolve reference \"(?P<image>[^\"\n]{1,200})\": [^\n]{0,200}not found",
    r"\[ERROR\] URL https?://\S{1,300} returned error code: 404\b",
    r"repository (?P<image>\S{1,200}) not found",
)
_RATE = (
    r"toomanyrequests: ",
    r"You have reached your (?:unauthenticated )?pull rate limit",
    r"\[ERROR\] URL https?://\S{1,300} returned error code: 429\b",
)
_WRONG_PLATFORM = (
    r"no matching manifest for (?P<platform>[\w/]{1,40}) in the manifest list",
    r"^(?:exec |standard_init_linux\.go:\d+: exec user process caused: |[^\n]{0,200}: )"
    r"[^\n]{0,160}[Ee]xec format error",
    r"image with reference \S{1,200} was found but (?:its platform )?does not match the specified",
)
_UNREACHABLE = (
    r"(?:Error response from daemon|failed to do request|failed to pull)[^\n]{0,300}"
    r"(?:TLS handshake timeout|i/o timeout|connection refused|Client\.Timeout exc|no such host)",
)
_START = (
    r"exec: \"(?P<command>[^\"\n]{1,200})\": (?:executable file not found in \$PATH|"
    r"stat [^\n]{1,200}: no such file or directory)",
    r"(?:^|\] )exec (?P<command>/[^\n ]{1,200}) failed: No such file or directory$",
)

CAUSES = (
    Cause(
        id="image-unauthorised",
        err_class=ErrClass.CREDENTIAL,
        cause="the registry refused the image: not logged in, or no right to it",
        suggestion="log in to the registry: NGC_KEY for nvcr.io (user $oauthtoken), docker login, "
        "an image pull secret, or ~/.config/enroot/.credentials; check that your team may use it",
        log=_UNAUTHORISED,
        reason=_UNAUTHORISED,
        specificity=80,
        even_as_warning=True,
        sample="slurmstepd: error: pyxis:     [ERROR] URL https://nvcr.io/proxy_auth returned "
        "error code: 401 Unauthorized",
    ),
    Cause(
        id="image-not-found",
        err_class=ErrClass.IMAGE,
        cause="there is no such image[: {image}]",
        suggestion="check registry, name and tag; a private image looks the same without a login",
        log=_NOT_FOUND,
        reason=_NOT_FOUND,
        specificity=81,
        even_as_warning=True,
        sample="docker: Error response from daemon: manifest for nvcr.io/nvidia/tao/tao-toolkit:"
        "9.9.9-pyt not found: manifest unknown: manifest unknown.",
    ),
    Cause(
        id="image-rate-limit",
        err_class=ErrClass.IMAGE,
        cause="the registry's limit on pulls is reached",
        suggestion="log in to the registry (anonymous limits are low), wait, or use a mirror",
        log=_RATE,
        reason=_RATE,
        specificity=82,
        sample="Error response from daemon: toomanyrequests: You have reached your pull rate "
        "limit. You may increase the limit by authenticating and upgrading",
    ),
    Cause(
        id="image-wrong-platform",
        err_class=ErrClass.IMAGE,
        cause="the image or program is for another kind of processor[ ({platform} wanted)]",
        suggestion="use an image built for this machine (amd64 or arm64)",
        log=_WRONG_PLATFORM,
        reason=(*_WRONG_PLATFORM, r"[Ee]xec format error"),
        specificity=78,
        sample="exec /opt/nvidia/nvidia_entrypoint.sh: exec format error",
    ),
    Cause(
        id="image-registry-unreachable",
        err_class=ErrClass.INFRA,
        cause="the image registry did not answer",
        suggestion="run again; if it comes back, check that the node reaches the registry (DNS, "
        "proxy, firewall)",
        log=_UNREACHABLE,
        reason=_UNREACHABLE,
        specificity=70,
        sample='Error response from daemon: Get "https://nvcr.io/v2/": net/http: TLS handshake '
        "timeout",
    ),
    Cause(
        id="image-pull-failed",
        err_class=ErrClass.IMAGE,
        cause="the image could not be pulled",
        suggestion="pull it by hand on that host to see why: name, login, network or disk",
        log=(r"pyxis: failed to import docker image",),
        reason=(
            r"\bErrImagePull\b",
            r"\bImagePullBackOff\b",
            r"\bErrImageNeverPull\b",
            r"\bFailed to pull image\b",
            r"\b(?:InvalidImageName|ErrImageInspect|ImageInspectError)\b",
            r"invalid reference format",
        ),
        specificity=45,
        even_as_warning=True,
        sample="slurmstepd: error: pyxis: failed to import docker image",
    ),
    Cause(
        id="image-file-damaged",
        err_class=ErrClass.IMAGE,
        cause="the image file (SQSH) is damaged",
        suggestion="delete it from the image cache, so that it is converted again",
        log=(
            r"Can't find a (?:valid )?SQUASHFS superblock on ",
            r"pyxis: .{0,80}(?:squashfs|\.sqsh).{0,80}(?:corrupt|invalid|truncated)",
        ),
        specificity=75,
        even_as_warning=True,
        sample="FATAL ERROR: Can't find a SQUASHFS superblock on /lustre/images/tao.sqsh",
    ),
    Cause(
        id="pyxis-missing",
        err_class=ErrClass.IMAGE,
        cause="this cluster cannot start containers through srun: Pyxis is not installed",
        suggestion="choose another container runtime of the cluster (Enroot, Apptainer) or ask the "
        "administrators for Pyxis",
        log=(r"srun: unrecognized option '--container-",),
        specificity=80,
        sample="srun: unrecognized option '--container-image=nvcr.io/nvidia/tao:6'",
    ),
    Cause(
        id="command-not-found",
        err_class=ErrClass.PROGRAM,
        cause="command not found[: {command}]",
        suggestion="check the spelling, and that the image or environment has the program on its "
        "PATH",
        log=(
            r"^(?:[\w./-]{1,80}: )?(?:line )?\d+: (?P<command>[^\n:]{1,160}): "
            r"(?:command )?not found$",
            r"^(?:[\w./-]{1,60}: )?(?P<command>[\w./-]{1,160}): command not found$",
            r"^(?:bash|sh|env|/usr/bin/env|exec|timeout|nohup|srun|slurmstepd)[^\n]{0,60}: "
            r"'?(?P<command>[^\n':]{1,160})'?: No such file or directory$",
            r"^slurmstepd: error: execve\(\): (?P<command>[\w.-]{1,100}): No such file or ",
        ),
        exit_codes=(127,),
        only_with=(2, 127),
        specificity=56,
        sample="bash: line 1: tao-trainer: command not found",
    ),
    Cause(
        id="bad-interpreter",
        err_class=ErrClass.PROGRAM,
        cause="a script names an interpreter that is not there[: {command}]",
        suggestion="correct its first line; a \\r in the name means that the file has Windows line "
        "ends (dos2unix)",
        log=(
            r"env: '(?P<command>\w+\\r)': No such file or directory",
            r"(?P<command>\S{1,100}): bad interpreter: No such file or directory",
        ),
        specificity=80,
        sample="/usr/bin/env: 'bash\\r': No such file or directory",
    ),
    Cause(
        id="not-executable",
        err_class=ErrClass.PROGRAM,
        cause="the command cannot be executed[: {command}]",
        suggestion="check its file mode (chmod +x), that it is a program and not a folder, and "
        "that it was built for this machine",
        log=(
            r"^(?:[\w./-]{1,80}: )?(?:line )?\d+: (?P<command>[^\n:]{1,160}): "
            r"(?:Permission denied|Is a directory)$",
        ),
        exit_codes=(126,),
        only_with=(126,),
        specificity=61,
        sample="bash: line 1: /workspace/train.sh: Permission denied",
    ),
    Cause(
        id="arguments-too-long",
        err_class=ErrClass.PROGRAM,
        cause="arguments and environment were too large to start a program[: {command}]",
        suggestion="the kernel takes 128 KiB for one argument or variable, and as a rule 2 MiB for "
        "all: pass large values in a file",
        log=(
            r"^(?:[\w./-]{1,80}: )?(?:line )?\d+: (?P<command>[^\n:]{1,160}): "
            r"Argument list too long$",
            r"^cannot start the job: \[Errno 7\] Argument list too long",
        ),
        specificity=80,
        sample="bash: line 1: /usr/bin/python3: Argument list too long",
    ),
    Cause(
        id="container-cannot-start",
        err_class=ErrClass.IMAGE,
        cause="the container could not be started[: no {command} in the image]",
        suggestion="check command and entrypoint against the image",
        log=_START,
        reason=(
            *_START,
            r"\b(?:ContainerCannotRun|StartError|RunContainerError|CreateContainerError)\b",
            r"OCI runtime (?:create|exec) failed",
        ),
        specificity=60,
        sample="docker: Error response from daemon: failed to create task for container: exec: "
        '"tao": executable file not found in $PATH: unknown.',
    ),
    Cause(
        id="mount-missing",
        err_class=ErrClass.DATA,
        cause="a folder to be mounted is not there[: {path}]",
        suggestion="create it on the host that runs the job, or correct the mount",
        log=(
            r"bind source path does not exist: (?P<path>\S{1,200})",
            r"pyxis: .{0,60}mount.{0,60}: (?P<path>/\S{1,200}).{0,40}No such file or directory",
        ),
        reason=(
            r"bind source path does not exist: (?P<path>\S{1,200})",
            r"persistentvolumeclaim \"(?P<path>[^\"\n]{1,100})\" not found",
            r"hostPath type check failed: (?P<path>\S{1,200}) is not a",
        ),
        specificity=75,
        sample='docker: Error response from daemon: invalid mount config for type "bind": bind '
        "source path does not exist: /data/coco.",
    ),
    Cause(
        id="secret-missing",
        err_class=ErrClass.CREDENTIAL,
        cause="a secret or setting that the container needs is not in the cluster[: {name}]",
        suggestion="create it in the job's namespace, or correct its name",
        reason=(
            r"(?:secret|configmap) \"(?P<name>[^\"\n]{1,100})\" not found",
            r"couldn't find key (?P<name>\S{1,100}) in (?:Secret|ConfigMap)",
            r"\bCreateContainerConfigError\b",
        ),
        specificity=70,
        sample='Error: secret "tao-image-pull-secret" not found',
    ),
    Cause(
        id="container-name-taken",
        err_class=ErrClass.PROGRAM,
        cause="a container of that name exists already[: {name}]",
        suggestion="remove the old container, or submit under another name",
        log=(r"Conflict\. The container name \"/?(?P<name>[^\"\n]{1,100})\" is already in use",),
        reason=(r"Conflict\. The container name \"/?(?P<name>[^\"\n]{1,100})\" is already in use",),
        specificity=75,
        sample='docker: Error response from daemon: Conflict. The container name "/tao-job-1" is '
        "already in use by container",
    ),
    Cause(
        id="docker-unreachable",
        err_class=ErrClass.INFRA,
        cause="the Docker daemon does not answer",
        suggestion="start Docker on that host (systemctl start docker), or correct DOCKER_HOST",
        log=(r"Cannot connect to the Docker daemon at \S{1,200}\. Is the docker daemon running\?",),
        reason=(r"Cannot connect to the Docker daemon at ",),
        specificity=75,
        sample="Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker "
        "daemon running?",
    ),
    Cause(
        id="docker-forbidden",
        err_class=ErrClass.CREDENTIAL,
        cause="this user may not talk to the Docker daemon",
        suggestion="add the user to the docker group and log in again",
        log=(r"permission denied while trying to connect to the [Dd]ocker (?:daemon|API)",),
        reason=(r"permission denied while trying to connect to the [Dd]ocker (?:daemon|API)",),
        specificity=78,
        sample="permission denied while trying to connect to the Docker daemon socket at "
        "unix:///var/run/docker.sock",
    ),
    Cause(
        id="illegal-instruction",
        err_class=ErrClass.IMAGE,
        cause="the program uses instructions that this processor does not have",
        suggestion="use an image or packages built for this processor, or a newer machine",
        log=(r"^(?:[^\n]{0,160}\d+ )?Illegal instruction(?: \(core dumped\))?(?:$| {2,})",),
        exit_codes=(132,),
        specificity=62,
        sample="Illegal instruction (core dumped)",
    ),
    Cause(
        id="onnx-export",
        err_class=ErrClass.PROGRAM,
        cause="the model cannot be exported to ONNX[: {operator} is not supported]",
        suggestion="raise opset_version in the spec, or replace that operator",
        log=(
            raised(
                r"UnsupportedOperatorError|RuntimeError",
                r"Exporting the operator '?(?P<operator>[\w:]+)'? to ONNX opset version",
            ),
            raised(r"SymbolicValueError|OnnxExporterError|TorchExportError|ConversionError"),
            raised(r"\w*Error", r".{0,60}ONNX (?:export|model) (?:failed|check failed)"),
        ),
        specificity=70,
        sample="torch.onnx.errors.UnsupportedOperatorError: Exporting the operator "
        "'aten::linalg_svd' to ONNX opset version 11 is not supported",
    ),
    Cause(
        id="tensorrt-build",
        err_class=ErrClass.PROGRAM,
        cause="TensorRT could not build the engine[: {message}]",
        suggestion="check the ONNX file, the input shapes (min, opt, max) and the precision in the "
        "spec; give the builder more workspace",
        log=(
            r"\[TRT\] \[E\] (?:\[\w+\] )?(?P<message>[^\n]{0,200}Error Code \d+: (?!OutOfMem)"
            r"[^\n]{0,120})",
            r"\[TRT\] \[E\] (?P<message>(?:In node|ModelImporter|parser)[^\n]{1,160})",
            r"(?P<message>No importer registered for op: \w+)",
            r"(?P<message>Failed to parse (?:the )?ONNX[^\n]{0,80})",
            r"(?P<message>Could not find any implementation for node [^\n]{1,80})",
        ),
        specificity=68,
        sample="[05/01/2026-12:00:00] [TRT] [E] 10: [optimizer.cpp::computeCosts::4048] Error Code "
        "10: Internal Error (Could not find any implementation for node {ForeignNode}.)",
    ),
    Cause(
        id="tensorrt-version",
        err_class=ErrClass.IMAGE,
        cause="the TensorRT engine was built by another version of TensorRT or for another GPU",
        suggestion="build the engine again with this image on this kind of GPU",
        log=(
            r"Version tag does not match",
            r"The engine plan file is (?:generated on an incompatible device|not compatible with)",
            r"Using an engine plan file across different models of devices",
            r"Serialization assertion .{0,80}failed\. ?Version tag",
        ),
        specificity=78,
        sample="[TRT] [E] 6: The engine plan file is not compatible with this version of TensorRT, "
        "expecting library version 8.6.1 got 8.5.3, please rebuild.",
    ),
)
