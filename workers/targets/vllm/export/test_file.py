"""Text of an exported test: what its trace needs of the driver, and one test."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.targets.vllm.export.assertions import Assertion, assertion_of
from workers.targets.vllm.export.calls import Caller, ids_of
from workers.targets.vllm.export.finding import Finding, Level, level_of
from workers.targets.vllm.export.options import (
    characters,
    check_spec,
    engine_options,
    head_arguments,
    sampling_options,
    speculative_config,
    weights_seed,
)
from workers.targets.vllm.export.parts import driver_source
from workers.targets.vllm.export.text import WIDTH, Code, call, indented

# Environment of every test: one process, and the first of vLLM's model runners.
_ENVIRONMENT = (
    'os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"',
    'os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"',
)


@dataclass(slots=True)
class Writer:
    """Writer of the lines of one test, and of the names that they use."""

    trace: Trace
    level: Level
    assertion: Assertion
    uses: set[str] = field(default_factory=set)

    @property
    def spec(self) -> EngineSpec:
        return self.trace.spec

    def lines(self, name: str) -> list[str]:
        """Return the test, and before it the function that runs its trace if another run has the same calls."""
        calls = Caller(self.trace, self.level).calls()
        self.uses |= calls.uses | self.assertion.uses
        if self.assertion.other not in ("synchronous", "without_speculation"):
            body = [*self._models(), *self._made(self._options(self.spec.depth > 1)), *calls.lines]
            return [self._heading(name), *indented([*body, *self._end()])]
        made = self._made_call(engine_options(self.spec), "**options")
        function = ["def run(model, **options):", *indented([*made, *calls.lines, "return engine.outputs"])]
        here, there = self._asynchrony(self.spec.depth > 1), self._asynchrony(False)
        if self.assertion.other == "synchronous":
            there |= self._speculation()
        runs = call("run", [Code("model")], here | self._speculation(), before="outputs = ")
        runs += call("run", [Code("model")], there, before="others = ")
        request = Code(f'["{self._request_id()}"]')
        chosen = [f"outputs, others = outputs{request.text}, others{request.text}", *self.assertion.lines]
        return [*function, "", "", self._heading(name), *indented([*self._models(), *runs, *chosen])]

    def _heading(self, name: str) -> str:
        is_patched = self.spec.depth > 1 or self._has_no_pinned_memory()
        return f"def test_{name}(tmp_path{', monkeypatch' * is_patched}):"

    def _has_no_pinned_memory(self) -> bool:
        return self.spec.num_speculative_tokens > 0 and self.spec.drafter == "ngram_gpu"

    def besides(self) -> list[str]:
        """Return the files that change the driver."""
        return ["connector"] * (self.spec.transfer is not None) + ["counts"] * self.assertion.watches

    def _models(self) -> list[str]:
        """Return the lines that write models: of a scheduler alone nobody reads weights."""
        spec, lines = self.spec, list[str]()
        if spec.depth > 1:
            self.uses.add("leave_asynchrony")
            lines.append("leave_asynchrony(monkeypatch)")
        if self.level == "scheduler":
            self.uses.add("save_config")
            return [*lines, *call("save_config", [Code('tmp_path / "model"'), spec.vocab_size], before="model = ")]
        weights = Code(f"llama({spec.vocab_size}, seed={weights_seed('target', spec.vocab_size)})")
        self.uses |= {"save_model", "llama"}
        drafts = speculative_config(spec) or {}
        if self._has_no_pinned_memory():
            self.uses.add("without_pinned_memory")
            lines.append("without_pinned_memory(monkeypatch)")
        if drafts.get("model") == Code("head"):
            self.uses.add("eagle_head")
            lines += [f"target = {weights.text}"]
            weights = Code("target")
        folder = Code('tmp_path / "model"')
        lines += call("save_model", [folder, weights, spec.vocab_size], before="model = ")
        if drafts.get("model") == Code("head"):
            seed, of_states, scale = head_arguments(spec)
            head = Code(f"eagle_head(target, seed={seed}, of_states={of_states}, scale={scale})")
            folder = Code('tmp_path / "head"')
            lines += call("save_model", [folder, head, spec.vocab_size], {"num_layers": 1}, before="head = ")
        if any(submit.params.grammar for submit in self.trace.submits()):
            self.uses.add("save_tokenizer")
            lines += [f'save_tokenizer(model, "{characters(spec.vocab_size)}")']
        return lines

    def _asynchrony(self, is_asynchronous: bool) -> dict[str, object]:
        return {"async_scheduling": is_asynchronous}

    def _speculation(self) -> dict[str, object]:
        found = speculative_config(self.spec)
        return {"speculative_config": found} if found is not None else {}

    def _options(self, is_asynchronous: bool) -> dict[str, object]:
        options = self._asynchrony(is_asynchronous) | engine_options(self.spec) | self._speculation()
        if any(submit.params.grammar for submit in self.trace.submits()):
            options["skip_tokenizer_init"] = False
        transfer = self.spec.transfer
        if transfer is not None:
            self.uses.add("prefix_connector")
            is_loaded_beside = transfer.loads == "asynchronous"
            options["kv_transfer_config"] = Code(f"prefix_connector(is_asynchronous={is_loaded_beside})")
        return options

    def _made(self, options: Mapping[str, object], variable: str = "") -> list[str]:
        return self._made_call(options, "", variable)

    def _made_call(self, options: Mapping[str, object], rest: str = "", variable: str = "") -> list[str]:
        self.uses.add(f"make_{self.level}")
        arguments: list[object] = [Code("model")]
        given: Mapping[str, object] = options
        if rest:
            arguments, given = [Code("model"), *(Code(f"{k}={v!r}") for k, v in options.items()), Code(rest)], {}
        lines = call(f"make_{self.level}", arguments, given, before=f"{variable or self.level} = ")
        return [*lines, "engine.counts = []"] if self.assertion.watches and not variable else lines

    def _request_id(self) -> str:
        assert self.assertion.submit is not None, "outputs are those of a request"
        return ids_of(self.trace)[self.assertion.submit]

    def _end(self) -> list[str]:
        """Return the lines behind the calls: which outputs are meant, and what is asserted of them."""
        submit, lines = self.assertion.submit, list(self.assertion.lines)
        if submit is None:
            return lines
        request_id = self._request_id()
        chosen = f'outputs = engine.outputs["{request_id}"]'
        parts = self._parts(submit)
        if len(parts) > 1:
            self.uses.add("parts_of")
            chosen = f'parts = parts_of(engine.outputs["{request_id}"])'
            lines = [f"outputs = parts[{parts.index(submit)}]", *lines]
        return [chosen, *(self._alone(submit, parts) if self.assertion.other == "alone" else []), *lines]

    def _parts(self, submit: Submit) -> Sequence[Submit]:
        if submit.session is None:
            return [submit]
        return [each for each in self.trace.submitted() if each.session == submit.session]

    def _alone(self, submit: Submit, parts: Sequence[Submit]) -> list[str]:
        """Return the lines that give the same prompt to a request of its own, in a synchronous engine."""
        prompt: list[object] = []
        for index, part in enumerate(parts[: parts.index(submit) + 1]):
            assert isinstance(part.prompt, tuple), "the trace is explicit"
            prompt += [Code(f"*{list(part.prompt)}")]
            if part is not submit:
                prompt += [Code(f"*tokens_of(parts[{index}])[:-1]")]
        lines = ["# The same as a request of its own, in a synchronous engine without drafts."]
        options = self._asynchrony(False) | engine_options(self.spec)
        lines += self._made(options, variable="alone")
        sampling = sampling_options(submit, self.spec.vocab_size)
        given = Code("[" + ", ".join(each.text for each in prompt if isinstance(each, Code)) + "]")
        if len(prompt) == 1:
            given = Code(str(list(submit.prompt)))
        lines += call("add_request", [Code("alone"), submit.request, given], sampling)
        if submit.params.grammar:
            lines += call("wait_for_grammar", [Code("alone"), submit.request])
        self.uses |= {"tokens_of", "drain", "add_request"}
        return [*lines, "drain(alone)", f'others = alone.outputs["{submit.request}"]']


class ExportedTest(NamedTuple):
    """The text of a test file, and the lines of its test alone."""

    text: str
    body: str


def exported_test(finding: Finding) -> ExportedTest:
    """Return the test of a finding.

    Raises:
        ExportError: no test on a plain CPU shows it; the message says why.
    """
    level = level_of(finding)
    check_spec(finding.trace.spec)
    writer = Writer(finding.trace, level, assertion_of(finding, level))
    body = "\n".join(writer.lines(finding.stem))
    imports, parts = driver_source(level, writer.uses, writer.besides())
    head = "\n\n".join([_docstring(finding, level), *imports, "\n".join(_ENVIRONMENT)])
    constants, *functions = parts
    if constants:
        head = f"{head}\n\n{constants}"
    return ExportedTest("\n\n\n".join([head, *functions, body]) + "\n", body)


def _docstring(finding: Finding, level: Level) -> str:
    what = "A scheduler without a model" if level == "scheduler" else "An engine in this process, on a CPU"
    lines = [
        *textwrap.wrap(f"{finding.title[:1].upper()}{finding.title[1:]}.", WIDTH - 3),
        "",
        *textwrap.wrap(f"{what}. Fails on vLLM {finding.version}.", WIDTH),
        *textwrap.wrap(f"Written by `specstorm export` from {finding.source}.", WIDTH),
    ]
    return '"""' + "\n".join(lines) + '\n"""'
