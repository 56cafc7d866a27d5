"""GPUs: memory, hardware, driver, kernels."""

from __future__ import annotations

from tao_sdk.failures.cause import Cause, Standing, cuda, raised
from tao_sdk.failures.err_class import ErrClass

# Xids that NVIDIA attributes to the application (13, 31, 43, 45) say nothing about the node; 63 is
# a note that a row was remapped in time. The rest of these mean that the GPU or its link is bad.
_HARDWARE_XIDS = (
    "38|48|54|56|57|58|60|61|62|64|65|66|67|68|69|7[0-9]|8[0-9]|9[2-9]|10[5-9]|"
    "11[0-9]|12[0-9]|13[6-9]|14[0-9]|15[0-9]"
)

CAUSES = (
    Cause(
        id="gpu-out-of-memory",
        err_class=ErrClass.OOM,
        cause="GPU[ {device}] out of memory[: {size} more were wanted]",
        suggestion="reduce the batch size or the input size, accumulate gradients, use mixed "
        "precision or activation checkpointing, or take a GPU with more memory",
        log=(
            raised(
                "RuntimeError|OutOfMemoryError|AcceleratorError",
                r"CUDA out of memory\. Tried to allocate (?P<size>[\d.]+ \w+)"
                r"(?:[. (]{1,3}GPU (?P<device>\d+))?",
            ),
            cuda("out of memory"),
            raised("RuntimeError", r"No executable batch size found, reached zero"),
            raised("OutOfMemoryError", r"Out of memory allocating (?P<size>[\d,]+ bytes)"),
            raised(
                r"\w*ResourceExhaustedError|XlaRuntimeError|JaxRuntimeError",
                r".{0,40}(?:OOM when allocating|Out of memory while trying to allocate|"
                r"Out of memory allocating)(?: (?P<size>[\d.]+ ?[KMGT]i?B))?",
            ),
            r"^Cuda failure (?:\d+ )?'out of memory'",
            r"\bCUDA failure 2: out of memory ?; GPU=(?P<device>\d+)",
            raised("ValueError", r"No available memory for the cache blocks"),
            r"Error Code \d+: OutOfMemory",
        ),
        specificity=80,
        sample="Traceback (most recent call last):\n"
        '  File "train.py", line 88, in step\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
        "total capacity of 79.15 GiB of which 1.17 GiB is free.",
    ),
    Cause(
        id="gpu-fallen-off-bus",
        err_class=ErrClass.INFRA,
        cause="a GPU[ ({device})] has fallen off the bus: the machine lost contact with it",
        suggestion="run again on another node; this one needs a reboot or a repair",
        log=(
            r"NVRM: (?:Xid \((?P<device>[^)]{1,60})\): 79, .{0,80}|.{0,80})"
            r"GPU has fallen off the bus",
            r"Unable to determine the device handle for GPU ?(?P<device>[\w:.]{1,40}): "
            r"(?:Unknown Error|GPU is lost|Not Found)",
            r"GPU is lost\.  ?Reboot the system to recover this GPU",
        ),
        reason=(r"nvml: GPU is lost", r"GPU has fallen off the bus"),
        standing=Standing.DECISIVE,
        specificity=86,
        even_as_warning=True,
        sample="NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=python, GPU has fallen off the bus.",
    ),
    Cause(
        id="gpu-uncorrectable-ecc",
        err_class=ErrClass.INFRA,
        cause="uncorrectable memory (ECC) error of a GPU",
        suggestion="run again on another node; this GPU needs a reset, and a replacement if the "
        "error comes back",
        log=(
            cuda(r"uncorrectable (?:ECC|NVLink) error"),
            r"^(?:[\w.]{0,110}: )?CUDA_ERROR_ECC_UNCORRECTABLE\b",
            r"NVRM: Xid \([^)]{1,60}\): (?:48|94|95),",
        ),
        standing=Standing.DECISIVE,
        specificity=85,
        even_as_warning=True,
        sample="RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ),
    Cause(
        id="gpu-xid",
        err_class=ErrClass.INFRA,
        cause="the driver reported Xid {xid} for GPU {device}: a fault of the GPU or its link",
        suggestion="run again on another node; report the node with this Xid",
        log=(rf"NVRM: Xid \((?P<device>[^)]{{1,60}})\): (?P<xid>{_HARDWARE_XIDS}),",),
        standing=Standing.DECISIVE,
        specificity=70,
        even_as_warning=True,
        sample="[812734.1] NVRM: Xid (PCI:0000:86:00): 119, pid=991, name=python3, "
        "Timeout after 6s of waiting for RPC response from GPU0 GSP!",
    ),
    Cause(
        id="gpu-xid-program",
        err_class=ErrClass.PROGRAM,
        cause="the driver reported Xid {xid} for GPU {device}: a GPU program touched memory that "
        "is not its own, or was stopped",
        suggestion="look for a custom kernel or an index out of range; run with "
        "CUDA_LAUNCH_BLOCKING=1 to find the call",
        log=(r"NVRM: Xid \((?P<device>[^)]{1,60})\): (?P<xid>13|31|43),",),
        specificity=60,
        even_as_warning=True,
        sample="NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=python, MMU Fault: ENGINE GRAPHICS",
    ),
    Cause(
        id="gpu-driver-too-old",
        err_class=ErrClass.INFRA,
        cause="the node's NVIDIA driver is too old for the CUDA version of the image"
        "[ (found {version})]",
        suggestion="run on a node with a newer driver, or use an image built for an older CUDA",
        log=(
            r"CUDA driver version is insufficient for CUDA runtime version",
            r"The NVIDIA driver on your system is too old \(found version (?P<version>\w+)\)",
            cuda(r"the provided PTX was compiled with an unsupported toolchain"),
            r"nvidia-container-cli: requirement error: unsatisfied condition: (?P<version>cuda\S+)",
        ),
        reason=(r"requirement error: unsatisfied condition: (?P<version>cuda\S+)",),
        specificity=75,
        sample="RuntimeError: The NVIDIA driver on your system is too old (found version 11040). "
        "Please update your GPU driver.",
    ),
    Cause(
        id="gpu-none-visible",
        err_class=ErrClass.INFRA,
        cause="no GPU is visible to the program",
        suggestion="ask for at least one GPU, leave CUDA_VISIBLE_DEVICES alone, and check that "
        "nvidia-smi works on that node",
        log=(
            cuda(r"no CUDA-capable device is detected"),
            raised("RuntimeError", r"No CUDA GPUs are available"),
            raised("RuntimeError", r"Found no NVIDIA driver on your system"),
            raised("MisconfigurationException", r"No supported gpu backend found!"),
            r"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
            raised(r"\w*Error", r".{0,80}CUDA_ERROR_NO_DEVICE"),
        ),
        specificity=65,
        sample="RuntimeError: No CUDA GPUs are available",
    ),
    Cause(
        id="gpu-wrong-index",
        err_class=ErrClass.PROGRAM,
        cause="the program addresses a GPU that it was not given[: {wanted} wanted, {had} there]",
        suggestion="make the number of GPUs in the spec equal to gpu_count; inside the job GPUs "
        "are always numbered from 0",
        log=(
            cuda(r"invalid device ordinal"),
            raised(
                "MisconfigurationException",
                r"You requested gpu: (?P<wanted>\[[^\]]{0,80}\])\s{1,3}But your machine only has: "
                r"(?P<had>\[[^\]]{0,80}\])",
            ),
            raised("AssertionError", r"Invalid device id"),
        ),
        specificity=70,
        sample="torch.AcceleratorError: CUDA error: invalid device ordinal",
    ),
    Cause(
        id="gpu-initialisation",
        err_class=ErrClass.INFRA,
        cause="CUDA cannot be initialised on that node",
        suggestion="run again on another node; on this one nvidia-smi, the driver and the fabric "
        "manager need a look",
        log=(
            cuda(r"(?:initialization error|system not yet initialized)"),
            r"^(?:[\w.]{0,110}Error: )?CUDA driver initialization failed",
            raised(
                "RuntimeError",
                r"Unexpected error from cudaGetDeviceCount\(\)(?!.{0,160}Error 2: out of memory)",
            ),
            r"^(?:[\w.]{0,110}Error: )?(?:failed call to )?cuInit(?:\(0\))? failed",
            r"Failed to initialize NVML: (?:Driver/library version mismatch|Unknown Error)",
            cuda(r"unknown error\b"),
        ),
        specificity=60,
        sample="Failed to initialize NVML: Driver/library version mismatch",
    ),
    Cause(
        id="gpu-busy",
        err_class=ErrClass.INFRA,
        cause="the GPU is held by another program",
        suggestion="run again; if it comes back, an earlier job left a process on that GPU, or it "
        "is in exclusive mode",
        log=(
            cuda(
                r"(?:all CUDA-capable devices are busy or unavailable|"
                r"CUDA-capable device\(s\) is/are busy or unavailable)"
            ),
        ),
        specificity=65,
        sample="RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    ),
    Cause(
        id="gpu-container-runtime",
        err_class=ErrClass.INFRA,
        cause="containers cannot use GPUs on that host: the NVIDIA container toolkit is missing "
        "or broken",
        suggestion="install or repair nvidia-container-toolkit on the host and restart Docker, or "
        "use another host",
        log=(
            r"could not select device driver \"[^\"]{0,20}\" with capabilities: \[\[gpu\]\]",
            r"nvidia-container-cli: (?:initialization|device|detection|ldcache|mount) error",
        ),
        reason=(
            r"could not select device driver",
            r"nvidia-container-cli: (?:initialization|device|detection|ldcache|mount) error",
        ),
        specificity=70,
        sample='docker: Error response from daemon: could not select device driver "" with '
        "capabilities: [[gpu]].",
    ),
    Cause(
        id="gpu-fork",
        err_class=ErrClass.PROGRAM,
        cause="CUDA was used before the process forked",
        suggestion="start workers with the 'spawn' method, and touch no GPU before they start",
        log=(raised("RuntimeError", r"Cannot re-initialize CUDA in forked subprocess"),),
        specificity=75,
        sample="RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
        "multiprocessing, you must use the 'spawn' start method",
    ),
    Cause(
        id="gpu-device-assert",
        err_class=ErrClass.PROGRAM,
        cause="an assertion in a GPU kernel failed: most often an index or a label out of range",
        suggestion="compare the labels with num_classes; run with CUDA_LAUNCH_BLOCKING=1, or once "
        "on the CPU, to see the call",
        log=(cuda(r"device-side assert triggered"),),
        specificity=60,
        sample="RuntimeError: CUDA error: device-side assert triggered",
    ),
    Cause(
        id="gpu-illegal-access",
        err_class=ErrClass.PROGRAM,
        cause="a GPU kernel touched memory that is not its own",
        suggestion="run with CUDA_LAUNCH_BLOCKING=1 to find the call, and under compute-sanitizer "
        "to find the access; custom kernels first",
        log=(
            cuda(r"an illegal memory access was encountered"),
            cuda(r"(?:unspecified launch failure|misaligned address|an illegal instruction)"),
            raised(r"\w*Error", r"CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED)"),
        ),
        specificity=60,
        sample="RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    Cause(
        id="gpu-architecture",
        err_class=ErrClass.IMAGE,
        cause="the image has no code for this kind of GPU",
        suggestion="use an image whose PyTorch and extensions are built for this GPU, or ask for "
        "another kind of GPU",
        log=(
            cuda(r"no kernel image is available for execution on the device"),
            r"nvrtc: error: invalid value for --gpu-architecture",
            raised(r"\w*Error", r".{0,80}PTXAS .{0,60}unsupported|ptxas fatal .{0,80}sm_\d+"),
        ),
        specificity=75,
        sample="RuntimeError: CUDA error: no kernel image is available for execution on the device",
    ),
    Cause(
        id="gpu-cudnn",
        err_class=ErrClass.PROGRAM,
        cause="cuDNN failed[ with {status}]",
        suggestion="try a smaller batch (cuDNN often fails for want of memory), then check that "
        "the cuDNN version is the one PyTorch was built with",
        log=(
            raised(
                r"RuntimeError|\w*Error",
                r"(?:GET was unable to find an engine|cuDNN error: (?P<status>CUDNN_STATUS_\w+))",
            ),
            raised("RuntimeError", r"cuDNN version incompatibility"),
            raised("RuntimeError", r"Unable to find a valid cuDNN algorithm to run convolution"),
        ),
        specificity=60,
        sample="RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    ),
    Cause(
        id="gpu-cublas",
        err_class=ErrClass.PROGRAM,
        cause="cuBLAS failed[ with {status}]",
        suggestion="try a smaller batch (ALLOC_FAILED and NOT_INITIALIZED are often want of "
        "memory), then look for an index out of range with CUDA_LAUNCH_BLOCKING=1",
        log=(cuda(r"(?P<status>CUBLAS_STATUS_\w+) when calling"),),
        specificity=60,
        sample="RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling "
        "`cublasSgemm( handle, opa, opb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc)`",
    ),
    Cause(
        id="gpu-mixed-devices",
        err_class=ErrClass.PROGRAM,
        cause="one operation was given tensors on different devices[ ({devices})]",
        suggestion="move the model and every input to the same device, in the last frame of the "
        "traceback first",
        log=(
            raised(
                "RuntimeError",
                r"Expected all tensors to be on the same device, but "
                r"(?:found at least two devices, (?P<devices>[\w:, ]{1,40})|got|they are)",
            ),
        ),
        specificity=70,
        sample="RuntimeError: Expected all tensors to be on the same device, but found at least "
        "two devices, cuda:0 and cpu!",
    ),
)
