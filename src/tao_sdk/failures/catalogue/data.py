"""Datasets, annotations, checkpoints, and what models make of them."""

from __future__ import annotations

from tao_sdk.failures.cause import Cause, raised
from tao_sdk.failures.err_class import ErrClass

CAUSES = (
    Cause(
        id="checkpoint-mismatch",
        err_class=ErrClass.DATA,
        cause="the checkpoint does not fit the model[ {model}]",
        suggestion="use the spec the checkpoint was trained with (number of classes, backbone, "
        "input size), or load it as pretrained weights without the head",
        log=(
            raised("RuntimeError", r"Error\(s\) in loading state_dict for (?P<model>\w+):"),
            raised("KeyError", r"['\"](?:state_dict|pytorch-lightning_version)['\"]$"),
            raised(
                "ValueError",
                r"loaded state dict (?:contains a parameter group|has a different number)",
            ),
        ),
        specificity=75,
        sample="RuntimeError: Error(s) in loading state_dict for DINOModel:\n"
        "\tsize mismatch for class_embed.0.weight: copying a param with shape "
        "torch.Size([91, 256]) from checkpoint, the shape in current model is "
        "torch.Size([4, 256]).",
    ),
    Cause(
        id="checkpoint-damaged",
        err_class=ErrClass.DATA,
        cause="a checkpoint or weights file is truncated or not what it claims to be",
        suggestion="fetch it again and compare its size; a file of a few hundred bytes is a Git "
        "LFS pointer or an error page, not a model",
        log=(
            raised("RuntimeError", r"PytorchStreamReader failed (?:reading zip archive|locating)"),
            raised("RuntimeError", r"unexpected EOF, expected \d+ more bytes"),
            raised("SafetensorError", r"Error while deserializing header"),
            raised("UnpicklingError", r"(?:invalid load key|pickle data was truncated|.{0,40}EOF)"),
            raised("EOFError", r"Ran out of input"),
            raised(r"OSError|\w*Error", r"Unable to (?:synchronously )?open file \(truncated file"),
            raised(r"OSError|\w*Error", r"Unable to .{0,20}open file \(file signature not found\)"),
            raised("RuntimeError", r"Invalid magic number; corrupt file\?"),
        ),
        specificity=75,
        sample="RuntimeError: PytorchStreamReader failed reading zip archive: failed finding "
        "central directory",
    ),
    Cause(
        id="checkpoint-weights-only",
        err_class=ErrClass.PROGRAM,
        cause="the checkpoint holds more than tensors, and PyTorch refuses to load that by default",
        suggestion="if you trust its source, load it with weights_only=False, or allow the classes "
        "it names with torch.serialization.add_safe_globals",
        log=(raised("UnpicklingError", r"Weights only load failed"),),
        specificity=78,
        sample="_pickle.UnpicklingError: Weights only load failed. This file can still be loaded",
    ),
    Cause(
        id="model-key-wrong",
        err_class=ErrClass.CREDENTIAL,
        cause="the model file is encrypted, and the key given does not open it",
        suggestion="pass the key the model was saved with (-k, or encryption_key in the spec)",
        log=(
            raised(r"\w*Error", r"Invalid decryption\."),
            r"The key used to load the model is incorrect",
        ),
        specificity=85,
        sample="ValueError: Invalid decryption. Unable to open file (file signature not found). "
        "The key used to load the model is incorrect.",
    ),
    Cause(
        id="training-diverged",
        err_class=ErrClass.PROGRAM,
        cause="the training diverged: the loss or a gradient is not a number",
        suggestion="lower the learning rate, warm up longer, clip gradients, use bf16 rather than "
        "fp16, and look for bad samples",
        log=(
            r"^Loss is (?:nan|inf|-inf|tensor\(nan[^\n]{0,40}), stopping training",
            raised("FloatingPointError", r".{0,120}(?:[Ll]oss|infinite|NaN|nan|Minimum loss sc)"),
            raised("ValueError", r"The loss returned in [`']?training_step[`']? is (?:nan|inf)"),
            raised("RuntimeError", r"Function '\w+' returned nan values in its \d+"),
            raised(r"\w*Error|\w*Exception", r".{0,80}(?:NaN|nan|Nan) (?:loss|values?) "),
            raised(r"\w*Error|Exception", r".{0,60}[Ll]oss (?:is|became|was|=) ?(?:nan|NaN|inf)"),
        ),
        specificity=70,
        sample="FloatingPointError: Loss became infinite or NaN at iteration=1204!",
    ),
    Cause(
        id="no-training-steps",
        err_class=ErrClass.DATA,
        cause="there is nothing to train on: the dataset is empty, or smaller than one batch",
        suggestion="check the data paths and filters in the spec, and make the batch (times the "
        "number of GPUs) no larger than the dataset",
        log=(
            raised("ValueError", r"num_samples should be a positive integer value, but got num_s"),
            r"^`?Trainer\.fit`? stopped: No training batches",
            raised(
                r"\w*Error|\w*Exception",
                r".{0,80}(?:[Dd]ata ?[Ll]oader|[Dd]ataset|dataset) (?:\S{1,80} )?"
                r"(?:is empty|has 0 samples|contains 0 |returned 0 length|length is 0)",
            ),
            raised("MisconfigurationException", r"Total length of .{0,40}across ranks is zero"),
            raised(
                r"\w*Error|\w*Exception",
                r".{0,80}[Bb]atch[ _]size .{0,60}(?:larger|bigger|greater) than .{0,40}"
                r"(?:dataset|samples|data)",
            ),
            raised(r"\w*Error", r"(?:No|Found 0) (?:images|samples|files|annotations) .{0,120}"),
        ),
        specificity=70,
        sample="ValueError: num_samples should be a positive integer value, but got num_samples=0",
    ),
    Cause(
        id="label-out-of-range",
        err_class=ErrClass.DATA,
        cause="a label lies outside the number of classes of the model[ (label {label})]",
        suggestion="set num_classes to the largest label plus one (plus background where the model "
        "has one), or correct the label map",
        log=(
            r"Assertion `t >= 0 && t < n_classes` failed",
            r"Assertion `cur_target >= 0 && cur_target < n_classes` failed",
            raised("IndexError", r"Target (?P<label>-?\d+) is out of bounds"),
            raised("RuntimeError", r"Class values must be (?:smaller than num_classes|non-negat)"),
            raised(
                r"\w*Error", r".{0,60}[Ll]abel (?:id |index )?(?P<label>\d+) .{0,40}num_classes"
            ),
        ),
        specificity=85,
        sample="/pytorch/aten/src/ATen/native/cuda/Loss.cu:245: nll_loss_forward_reduce_cuda_"
        "kernel_2d: block: [0,0,0], thread: [1,0,0] Assertion `t >= 0 && t < n_classes` failed.\n"
        "RuntimeError: CUDA error: device-side assert triggered",
    ),
    Cause(
        id="index-out-of-range",
        err_class=ErrClass.PROGRAM,
        cause="an index lies outside a table: most often a token or class outside an embedding",
        suggestion="compare the largest index with the size of the table (vocabulary, classes, "
        "positions), for instance after changing the tokenizer",
        log=(
            r"Assertion `srcIndex < srcSelectDimSize` failed",
            r"Assertion `-sizes\[i\] <= index && index < sizes\[i\]",
            r"Assertion `(?:ind >= 0 && ind < ind_dim_size|idx_dim >= 0 && idx_dim < index_size)",
            raised("IndexError", r"index out of range in self$"),
        ),
        specificity=80,
        sample="/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1515: indexSelectSmallIndex: block: "
        "[0,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
    ),
    Cause(
        id="shape-mismatch",
        err_class=ErrClass.PROGRAM,
        cause="tensors of the wrong shape meet: {message}",
        suggestion="compare input size, channels and number of classes in the spec with what the "
        "model expects; the last frames of the traceback tell which layer it is",
        log=(
            raised(
                r"RuntimeError|ValueError|\w*Error",
                r"(?P<message>(?:\w+: )?mat1 and mat2 shapes cannot be multiplied[^\n]{0,60}|"
                r"The size of tensor a [^\n]{1,100}|Sizes of tensors must match[^\n]{0,120}|"
                r"Given groups=\d+, (?:expected )?weight [^\n]{1,160}|"
                r"shape '[^'\n]{1,60}' is invalid for input of size \d+|"
                r"stack expects each tensor to be equal size[^\n]{0,80}|"
                r"operands could not be broadcast together[^\n]{0,80}|"
                r"Expected input batch_size \(\d+\) to match target batch_size[^\n]{0,20}|"
                r"Trying to resize storage that is not resizable)",
            ),
        ),
        specificity=65,
        sample="RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x192 and 100x10)",
    ),
    Cause(
        id="dtype-mismatch",
        err_class=ErrClass.PROGRAM,
        cause="numbers of different types meet: {message}",
        suggestion="cast model and inputs alike, or let autocast do it (precision in the spec)",
        log=(
            raised(
                "RuntimeError",
                r"(?P<message>Input type \([^\n]{1,60} and (?:weight|bias) type[^\n]{1,80}|"
                r"expected (?:m1 and m2 to have the same dtype|scalar type \w+ but found \w+)"
                r"[^\n]{0,60}|mat1 and mat2 must have the same dtype[^\n]{0,60})",
            ),
        ),
        specificity=65,
        sample="RuntimeError: Input type (c10::Half) and bias type (float) should be the same",
    ),
    Cause(
        id="image-damaged",
        err_class=ErrClass.DATA,
        cause="an image of the dataset cannot be read[: {file}]",
        suggestion="find and remove or replace damaged images (open each once with PIL), and check "
        "that the dataset was staged whole",
        log=(
            raised(
                "UnidentifiedImageError",
                r"cannot identify image file (?:<[^>\n]{1,80}>|'(?P<file>[^'\n]{1,300})')",
            ),
            raised(r"OSError|\w*Error", r"(?:image file is truncated|broken data stream when)"),
            raised("error", r"OpenCV\S{0,20} .{0,160}Assertion failed\) !_?(?:src|img)\.empty"),
            raised(r"SyntaxError|\w*Error", r"(?:broken PNG file|not a (?:PNG|TIFF) file)"),
        ),
        specificity=75,
        sample="PIL.UnidentifiedImageError: cannot identify image file '/data/train/0042.jpg'",
    ),
    Cause(
        id="annotations-unreadable",
        err_class=ErrClass.DATA,
        cause="an annotation or data file cannot be read: {message}",
        suggestion="validate that file: was it written whole, in the format the spec names, as "
        "UTF-8?",
        log=(
            raised("JSONDecodeError", r"(?P<message>[^\n]{1,120})"),
            raised("ParseError", r"(?P<message>[^\n]{0,60}line \d+, column \d+)"),
            raised("ParserError", r"(?P<message>Error tokenizing data\.[^\n]{0,100})"),
            raised("EmptyDataError", r"(?P<message>[^\n]{1,100})"),
            raised("UnicodeDecodeError", r"(?P<message>[^\n]{1,120})"),
            raised("ArrowInvalid", r"(?P<message>[^\n]{1,160})"),
            raised("DataLossError", r"(?P<message>[^\n]{1,120})"),
            raised("AssertionError", r"(?P<message>annotation file format [^\n]{1,80})"),
            raised("ValueError", r"(?P<message>Expected [xy]_m(?:ax|in) for bbox [^\n]{1,120})"),
        ),
        specificity=58,
        sample="json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: "
        "line 1 column 23 (char 22)",
    ),
    Cause(
        id="annotations-incomplete",
        err_class=ErrClass.DATA,
        cause="the annotations lack what the program looks for: {key}",
        suggestion="compare the annotation file with the format that the spec names (COCO: images, "
        "annotations, categories)",
        log=(
            raised(
                "KeyError",
                r"['\"](?P<key>annotations|categories|images|bbox|image_id|category_id|file_name|"
                r"segmentation)['\"]$",
            ),
        ),
        specificity=56,
        sample='Traceback (most recent call last):\n  File "coco.py", line 30, in load\n'
        "KeyError: 'annotations'",
    ),
    Cause(
        id="archive-damaged",
        err_class=ErrClass.DATA,
        cause="an archive is damaged or is not an archive: {message}",
        suggestion="fetch it again and compare its size or checksum",
        log=(
            raised("BadZipFile", r"(?P<message>[^\n]{1,100})"),
            raised("BadGzipFile", r"(?P<message>[^\n]{1,100})"),
            raised(
                "ReadError",
                r"(?P<message>file could not be opened|unexpected end of data|not a gzip file)",
            ),
            r"^(?:gzip|tar|unzip|bzip2|xz): [^\n]{0,160}(?P<message>unexpected end of file|"
            r"not in gzip format|Unexpected EOF in archive|does not look like a tar archive)",
        ),
        specificity=65,
        sample="zipfile.BadZipFile: File is not a zip file",
    ),
)
