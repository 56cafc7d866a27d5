"""Disks, files and file systems."""

from __future__ import annotations

from tao_sdk.failures.cause import Cause, raised
from tao_sdk.failures.err_class import ErrClass

# A path as Python and the usual programs quote it at the end of a message.
_PATH = r"(?:: '(?P<file>[^'\n]{1,300})')?"

CAUSES = (
    Cause(
        id="disk-full",
        err_class=ErrClass.INFRA,
        cause="a disk is full[: {file}]",
        suggestion="free space on that disk or write elsewhere; if it is the node's own disk, "
        "another node may do",
        log=(
            raised(r"OSError|IOError|\w*Error", r"\[Errno 28\] No space left on device" + _PATH),
            r"^[\w./-]{1,80}: (?![^\n]{0,80}Error: )[^\n]{0,300}No space left on device$",
            r"failed to register layer: .{0,200}no space left on device",
            raised("RuntimeError", r"\[enforce fail at inline_container\.cc:\d+\] ?\. unexpected "),
            raised(r"\w*Error", r"PytorchStreamWriter failed writing file"),
        ),
        reason=(r"[Nn]o space left on device",),
        specificity=75,
        sample="OSError: [Errno 28] No space left on device: '/results/train/model_004.pth'",
    ),
    Cause(
        id="disk-quota",
        err_class=ErrClass.CAPACITY,
        cause="your quota on that file system is used up[: {file}]",
        suggestion="delete what you no longer need there, ask for a larger quota, or set "
        "results_dir to another file system",
        log=(
            raised(r"\w*Error", r"\[Errno 122\] Disk quota exceeded" + _PATH),
            r"^[\w./-]{1,80}: [^\n]{0,240}Disk quota exceeded",
        ),
        specificity=75,
        sample="OSError: [Errno 122] Disk quota exceeded: '/lustre/users/me/results/last.ckpt'",
    ),
    Cause(
        id="read-only-file-system",
        err_class=ErrClass.PROGRAM,
        cause="the program writes to a read-only file system[: {file}]",
        suggestion="point the output folder of the spec at the results folder, or mount the "
        "volume writable",
        log=(
            raised(r"\w*Error", r"\[Errno 30\] Read-only file system" + _PATH),
            r"^[\w./-]{1,80}: [^\n]{0,240}Read-only file system",
        ),
        specificity=70,
        sample="OSError: [Errno 30] Read-only file system: '/data/cache'",
    ),
    Cause(
        id="stale-file-handle",
        err_class=ErrClass.INFRA,
        cause="a network file system lost the file or the connection[: {file}]",
        suggestion="run again; if it comes back on one node, exclude that node and report it",
        log=(
            raised(
                r"\w*Error",
                r"\[Errno (?:116|521)\] (?:Stale file handle|Stale NFS file handle)" + _PATH,
            ),
            raised(
                r"\w*Error",
                r"\[Errno (?:107|108|121)\] (?:Transport endpoint is not connected|"
                r"Cannot send after transport endpoint shutdown|Remote I/O error)" + _PATH,
            ),
            r"^[\w./-]{1,80}: [^\n]{0,240}(?:Stale (?:NFS )?file handle|"
            r"Transport endpoint is not connected)$",
        ),
        specificity=70,
        sample="OSError: [Errno 116] Stale file handle: '/lustre/datasets/coco/train.tar'",
    ),
    Cause(
        id="disk-io-error",
        err_class=ErrClass.INFRA,
        cause="a disk or network file system failed to read or write[: {file}]",
        suggestion="run again on another node, and report this one",
        log=(
            raised(r"\w*Error", r"\[Errno 5\] Input/output error" + _PATH),
            r"^[\w./-]{1,80}: [^\n]{0,240}: Input/output error$",
        ),
        specificity=70,
        sample="OSError: [Errno 5] Input/output error: '/mnt/data/shard-0012.tar'",
    ),
    Cause(
        id="too-many-open-files",
        err_class=ErrClass.PROGRAM,
        cause="too many files are open at once",
        suggestion="raise the limit (ulimit -n 65535; docker: --ulimit nofile=65535), lower "
        "num_workers, or set torch.multiprocessing.set_sharing_strategy('file_system')",
        log=(
            raised(r"\w*Error", r"\[Errno 24\] Too many open files"),
            raised("RuntimeError", r"received 0 items of ancdata"),
            raised("RuntimeError", r"unable to open shared memory object .{0,80}Too many open"),
            r"^[\w./-]{1,80}: [^\n]{0,240}Too many open files$",
        ),
        specificity=92,
        sample="OSError: [Errno 24] Too many open files: '/data/train/000123.jpg'",
    ),
    Cause(
        id="file-missing",
        err_class=ErrClass.DATA,
        cause="no such file or folder[: {file}]",
        suggestion="check the path in the spec as the container sees it: is it staged or mounted, "
        "and spelt right?",
        log=(
            raised("FileNotFoundError|OSError", r"\[Errno 2\] No such file or directory" + _PATH),
            raised("FileNotFoundError", r"(?!Caught )(?P<file>[^\n]{0,200})"),
            raised(r"\w*Error", r"\[Errno 2\] Unable to (?:synchronously )?open file"),
            r"^(?:[\w./-]{1,80}: ){1,3}(?:cannot (?:access|stat|open) )?"
            r"['\"]?(?P<file>/[^\n'\":]{1,200})['\"]?: No such file or directory$",
        ),
        specificity=55,
        sample="FileNotFoundError: [Errno 2] No such file or directory: '/data/train.json'",
    ),
    Cause(
        id="permission-denied",
        err_class=ErrClass.DATA,
        cause="no permission for a file or folder[: {file}]",
        suggestion="give the job's user access, or run the container as the owner of the data "
        "(docker: user=; kubernetes: securityContext)",
        log=(
            raised(r"PermissionError|OSError", r"\[Errno 13\] Permission denied" + _PATH),
            raised("PermissionError", r"\[Errno 1\] Operation not permitted" + _PATH),
            r"^(?:mkdir|cp|mv|rm|tar|touch|ln|rsync|ls|cat|chmod|chown)"
            r": [^\n]{0,160}'(?P<file>[^\n']{1,200})': Permission denied$",
        ),
        specificity=60,
        sample="PermissionError: [Errno 13] Permission denied: '/results/train'",
    ),
    Cause(
        id="wrong-kind-of-path",
        err_class=ErrClass.DATA,
        cause="a folder stands where a file is wanted, or the reverse[: {file}]",
        suggestion="look at that path in the spec: one part too many or too few",
        log=(
            raised("IsADirectoryError", r"(?:\[Errno 21\] Is a directory)?" + _PATH),
            raised("NotADirectoryError", r"(?:\[Errno 20\] Not a directory)?" + _PATH),
        ),
        specificity=60,
        sample="IsADirectoryError: [Errno 21] Is a directory: '/data/annotations'",
    ),
    Cause(
        id="file-locked",
        err_class=ErrClass.DATA,
        cause="a file is locked by another process",
        suggestion="let only one process open it for writing, or set "
        "HDF5_USE_FILE_LOCKING=FALSE on file systems without locks",
        log=(
            raised(r"\w*Error", r"(?:\[Errno 11\] )?Unable to .{0,30}open file \(unable to lock"),
            raised(r"\w*Error", r"database is locked"),
        ),
        specificity=70,
        sample="BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11, "
        "error message = 'Resource temporarily unavailable')",
    ),
)
