"""Python itself and the libraries it loads."""

from __future__ import annotations

from tao_sdk.failures.cause import Cause, Standing, raised
from tao_sdk.failures.err_class import ErrClass

CAUSES = (
    Cause(
        id="module-missing",
        err_class=ErrClass.PROGRAM,
        cause="Python module {module} is not installed",
        suggestion="use an image that has it, or install it at the start of the command: "
        "pip install {module}",
        log=(raised("ModuleNotFoundError|ImportError", r"No module named '?(?P<module>[\w.-]+)"),),
        specificity=70,
        sample="ModuleNotFoundError: No module named 'pycocotools'",
    ),
    Cause(
        id="import-name",
        err_class=ErrClass.PROGRAM,
        cause="{module} has no {name}: two packages of different versions do not fit",
        suggestion="install the version of {module} that the importing package was written for",
        log=(
            raised(
                "ImportError",
                r"cannot import name '(?P<name>\w+)' from (?:partially initialized module )?"
                r"'(?P<module>[\w.]+)'",
            ),
            raised(
                "AttributeError",
                r"module '(?P<module>(?:numpy|torch|torchvision|PIL|transformers)[\w.]*)' has no "
                r"attribute '(?P<name>\w+)'",
            ),
        ),
        specificity=65,
        sample="ImportError: cannot import name 'container_abcs' from 'torch._six'",
    ),
    Cause(
        id="shared-library-missing",
        err_class=ErrClass.IMAGE,
        cause="the system library {library} is missing in the image",
        suggestion="install the package that brings {library} (libGL.so.1: apt-get install libgl1, "
        "or use opencv-python-headless), or use an image that has it",
        log=(
            raised(
                "ImportError|OSError",
                r"(?P<library>lib[\w+.-]+\.so[\w.]*): cannot open shared",
            ),
            r"error while loading shared libraries: (?P<library>lib[\w+.-]+): cannot open shared",
            raised(r"\w*Error", r"Could not load dynamic library '(?P<library>lib[\w+.-]+)'"),
        ),
        specificity=75,
        sample="ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
    ),
    Cause(
        id="library-too-old",
        err_class=ErrClass.IMAGE,
        cause="a binary needs {version}, which this system does not have[ ({library})]",
        suggestion="use an image with a newer base system, or packages built for this one",
        log=(
            r"(?P<library>/\S{1,200}): version [`'](?P<version>(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+)' "
            r"not found",
        ),
        specificity=78,
        sample="ImportError: /lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.29' not found "
        "(required by /usr/local/lib/python3.8/site-packages/torch/lib/libtorch_cpu.so)",
    ),
    Cause(
        id="undefined-symbol",
        err_class=ErrClass.IMAGE,
        cause="a compiled extension does not fit the installed libraries (undefined symbol)",
        suggestion="rebuild or reinstall the extension named in the message against the installed "
        "PyTorch and CUDA",
        log=(raised("ImportError|OSError", r".{0,300}undefined symbol: (?P<symbol>\w+)"),),
        specificity=75,
        sample="ImportError: /opt/ops/_C.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
    ),
    Cause(
        id="numpy-abi",
        err_class=ErrClass.IMAGE,
        cause="a compiled package was built for another NumPy",
        suggestion="pin numpy<2, or reinstall that package so that it fits the installed NumPy",
        log=(
            raised("ValueError", r"numpy\.\w+ size changed, may indicate binary incompatibility"),
            r"^A module that was compiled using NumPy 1\.x cannot be run in",
            raised("ImportError|RuntimeError", r"numpy\.core\.multiarray failed to import"),
        ),
        specificity=70,
        sample="ValueError: numpy.dtype size changed, may indicate binary incompatibility. "
        "Expected 96 from C header, got 88 from PyObject",
    ),
    Cause(
        id="syntax-error",
        err_class=ErrClass.PROGRAM,
        cause="a Python file cannot be read: {message}",
        suggestion="correct the line shown in the log; code for a newer Python fails so on an "
        "older one",
        log=(raised("SyntaxError|IndentationError|TabError", r"(?P<message>[^\n]{1,200})"),),
        specificity=60,
        sample="SyntaxError: invalid syntax",
    ),
    Cause(
        id="cannot-pickle",
        err_class=ErrClass.PROGRAM,
        cause="an object cannot be sent to a worker process: {message}",
        suggestion="define it at the top level of a module (no lambda, no local class), or set "
        "num_workers to 0",
        log=(
            raised(
                "AttributeError|TypeError|PicklingError",
                r"(?P<message>(?:Can't pickle|cannot pickle|Can't get local object)[^\n]{0,160})",
            ),
        ),
        specificity=60,
        sample="AttributeError: Can't pickle local object 'build.<locals>.<lambda>'",
    ),
    Cause(
        id="stdin-closed",
        err_class=ErrClass.PROGRAM,
        cause="the program asked a question, and a job has nobody to answer it",
        suggestion="answer beforehand: a flag such as --yes, a variable, or a setting in the spec",
        log=(
            raised("EOFError", r"EOF when reading a line"),
            r"the input device is not a TTY",
            r"^(?:Aborted!|Error: ).{0,60}(?:non-interactive|not a terminal|no TTY)",
        ),
        specificity=65,
        sample="Do you want to continue? [y/N] Traceback (most recent call last):\n"
        '  File "setup.py", line 3, in <module>\n'
        "EOFError: EOF when reading a line",
    ),
    Cause(
        id="dataloader-worker-died",
        err_class=ErrClass.PROGRAM,
        cause="a data-loader worker died[ by signal {signal}]",
        suggestion="run once with num_workers=0: then the error appears where it happens",
        log=(
            raised(
                "RuntimeError",
                r"DataLoader worker \(pid \d+\) is killed by signal: "
                r"(?P<signal>Segmentation fault|Aborted|Floating point exception|"
                r"Illegal instruction|Unknown signal)",
            ),
            raised("RuntimeError", r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) exited unexpect"),
        ),
        standing=Standing.COLLATERAL,
        specificity=55,
        sample="RuntimeError: DataLoader worker (pid(s) 8243) exited unexpectedly",
    ),
    Cause(
        id="pip-cannot-install",
        err_class=ErrClass.PROGRAM,
        cause="pip found no version of {package} that fits",
        suggestion="check name and version, the Python version of the image, and that the node "
        "may reach the package index",
        log=(
            r"No matching distribution found for (?P<package>[^\s;]{1,100})",
            r"^(?:ERROR: )?Cannot install (?P<package>.{1,160}) because these package versions",
            r"^(?:ERROR: )?ResolutionImpossible: ",
        ),
        specificity=60,
        sample="ERROR: Could not find a version that satisfies the requirement nvidia-tao==99.9\n"
        "ERROR: No matching distribution found for nvidia-tao==99.9",
    ),
    Cause(
        id="interrupted",
        err_class=ErrClass.UNKNOWN,
        cause="interrupted from outside (a keyboard interrupt or a signal)",
        suggestion="if you did not stop it, see who did: a scheduler, a launcher whose other rank "
        "failed, or a colleague",
        log=(
            raised("KeyboardInterrupt"),
            raised("SignalException", r"Process \d+ got signal: \d+"),
            raised("SIGTERMException"),
            raised(
                "RuntimeError",
                r"DataLoader worker \(pid \d+\) is killed by signal: (?:Terminated|Interrupt)",
            ),
        ),
        exit_codes=(130,),
        standing=Standing.COLLATERAL,
        specificity=60,
        sample="torch.distributed.elastic.multiprocessing.api.SignalException: Process 17 got "
        "signal: 15",
    ),
    Cause(
        id="python-exception",
        err_class=ErrClass.PROGRAM,
        cause="{exception}[: {message}][ (in {frame})]",
        suggestion="see the traceback in the log, its last lines first",
        # Matched by the structure of a traceback, not by a pattern: every exception is one.
        specificity=10,
        sample='Traceback (most recent call last):\n  File "train.py", line 3, in main\n'
        "ZeroDivisionError: division by zero",
    ),
)
