"""Writes an OpenVINO model with 8-bit weights, one scale and zero point a row, from a GGUF file in F16.

The file's folder gets some files of OpenVINO's own besides. Usage: export_openvino.py GGUF FOLDER
"""

import shutil
import sys
from pathlib import Path

import numpy
import openvino
import openvino_genai
from openvino import opset13 as ops

SMALLEST = 1 << 16  # elements: what is smaller stays as it is


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    openvino_genai.LLMPipeline(str(source), "CPU", enable_save_ov_model=True)
    model = openvino.Core().read_model(source.parent / "openvino_model.xml")
    for constant in model.get_ops():
        shape = list(constant.get_output_shape(0)) if constant.get_type_name() == "Constant" else []
        if len(shape) == 2 and shape[0] * shape[1] >= SMALLEST:
            compress(constant)
    target.mkdir()
    openvino.save_model(model, target / "openvino_model.xml", compress_to_fp16=False)
    for file in source.parent.glob("openvino_*tokenizer.*"):
        shutil.copy(file, target)


def compress(constant: openvino.Node) -> None:
    """Puts 8-bit integers and (q - zero) * scale, the form that the plugin keeps compressed, in place of a matrix."""
    matrix = numpy.array(constant.data, dtype=numpy.float32)
    low = numpy.minimum(matrix.min(1, keepdims=True), 0)
    high = numpy.maximum(matrix.max(1, keepdims=True), 0)
    scale = ((high - low) / 255).astype(numpy.float16)
    scale[scale == 0] = 1
    zero = numpy.clip(numpy.rint(-low / scale), 0, 255)
    quantized = numpy.clip(numpy.rint(matrix / scale) + zero, 0, 255)
    integers, zeros = (
        ops.convert(ops.constant(values.astype(numpy.uint8)), "f16") for values in (quantized, zero)
    )
    product = ops.multiply(ops.subtract(integers, zeros), ops.constant(scale))
    # The constants are in F16, and what they go into converts them.
    for user in constant.output(0).get_target_inputs():
        user.replace_source_output(product.output(0))


if __name__ == "__main__":
    main()
