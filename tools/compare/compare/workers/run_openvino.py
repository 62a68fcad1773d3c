"""Measures OpenVINO GenAI on a GGUF file, which it reads and compiles itself."""

import numpy
import openvino
import openvino_genai
from common import arguments, measure

VOCAB = 151_643  # tokens before the special ones


def main() -> None:
    args = arguments()
    pipeline = openvino_genai.LLMPipeline(args.model, "CPU", INFERENCE_NUM_THREADS=args.threads)
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = args.new + 1
    config.ignore_eos = True
    config.do_sample = False

    def once(number: int) -> tuple[float, float]:
        # Other tokens each time, since prompts are cached.
        tokens = numpy.random.default_rng(number).integers(0, VOCAB, (args.batch, args.prompt), dtype=numpy.int64)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(tokens), openvino.Tensor(numpy.ones_like(tokens)))
        metrics = pipeline.generate(inputs, config).perf_metrics
        assert metrics.get_num_generated_tokens() == args.batch * (args.new + 1), "it stopped early"
        times = metrics.raw_metrics.m_new_token_times  # ms, one for each step
        assert len(times) == args.new + 1, "the texts did not go together"
        return metrics.get_ttft().mean / 1e3, (times[-1] - times[0]) / 1e3

    measure(args, once)


if __name__ == "__main__":
    main()
