"""Source of an exported test file: the driver functions that its trace needs, and the test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.targets.child.export.parts import source_of
from workers.targets.child.export.text import Call, Code, call, docstring, indented, literal, wrapped
from workers.targets.child.request_features import RequestFeatures
from workers.targets.child.weights import weights_seed
from workers.targets.exported import ExportedTest, Finding
from workers.targets.vllm.export.assertions import Assertion, assertion_of
from workers.targets.vllm.export.calls import Caller, ids_of
from workers.targets.vllm.export.level import Level, level_of, stem_of
from workers.targets.vllm.export.options import (
    characters,
    check_seeds,
    check_spec,
    engine_options,
    head_options,
    sampling_options,
    speculative_config,
)

_DRIVER = Path(__file__).parent / "driver"
# Files of the driver by what the test builds.
_FILES: Mapping[Level, tuple[str, ...]] = {"engine": ("cpu", "engine", "outputs"), "scheduler": ("cpu", "scheduler")}
# Environment of every test: one process, and vLLM's first model runner.
_ENVIRONMENT = (
    'os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"',
    'os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"',
)


# Number of layers that `with_window_layers` of the driver makes.
_WINDOW_LAYERS = 4


@dataclass(slots=True)
class Writer:
    """Writes the source lines of one exported test; `uses` collects the driver names in them."""

    trace: Trace
    level: Level
    assertion: Assertion
    features: RequestFeatures
    window_blocks_max: int
    uses: set[str] = field(default_factory=set)

    @property
    def spec(self) -> EngineSpec:
        return self.trace.spec

    def lines(self, name: str) -> list[str]:
        """Return the test function; before it a function `run` if two engines run the trace."""
        calls = Caller(self.trace, self.level, self.features).calls()
        self.uses |= calls.uses | self.assertion.uses
        is_patched = self.spec.depth > 1 or self._has_no_pinned_memory()
        heading = f"def test_{name}(tmp_path{', monkeypatch' * is_patched}):"
        if self.assertion.other in ("synchronous", "without_speculation"):
            return [*self._function(calls.lines), "", "", heading, *indented([*self._models(), *self._two_runs()])]
        options = self._asynchrony(self.spec.depth > 1) | self._options() | self._speculation()
        body = [*self._models(), *self._made(self.level, options), *calls.lines, *self._end()]
        return [heading, *indented(body)]

    def extra_files(self) -> list[str]:
        """Return the driver files with functions that replace the default ones."""
        return ["connector"] * (self.spec.transfer is not None) + [self.assertion.watches] * bool(
            self.assertion.watches
        )

    def _function(self, calls: list[str]) -> list[str]:
        """Return the function `run`, which runs the trace in an engine with the given options."""
        made = self._made("engine", self._options(), Code("**options"))
        return ["def run(model, **options):", *indented([*made, *calls, "return engine.outputs"])]

    def _two_runs(self) -> list[str]:
        options, other_options = self._asynchrony(self.spec.depth > 1), self._asynchrony(False)
        if self.assertion.other == "synchronous":
            other_options |= self._speculation()
        request = literal(self._request_id())
        return [
            *wrapped(Call("run", [Code("model")], options | self._speculation()), "outputs = ", f"[{request}]"),
            *wrapped(Call("run", [Code("model")], other_options), "others = ", f"[{request}]"),
            *self.assertion.lines,
        ]

    def _models(self) -> list[str]:
        """Return the lines that save the models of the test; a scheduler needs only their configs."""
        spec, lines = self.spec, list[str]()
        if spec.depth > 1:
            self.uses.add("keep_async_scheduling")
            lines.append("keep_async_scheduling(monkeypatch)")
        has_head = (speculative_config(spec) or {}).get("model") == Code("head")
        if self.level == "scheduler":
            self.uses.add("save_config")
            lines += wrapped(Call("save_config", [_folder("model"), spec.vocab_size]), "model = ")
            head = Call("save_config", [_folder("head"), spec.vocab_size], {"num_layers": 1})
            return [*lines, *(wrapped(head, "head = ") if has_head else [])]
        self.uses |= {"save_model", "llama"}
        if self._has_no_pinned_memory():
            self.uses.add("ignore_pinned_memory")
            lines.append("ignore_pinned_memory(monkeypatch)")
        target: Call | Code = Call("llama", [spec.vocab_size], {"seed": weights_seed("target", spec.vocab_size)})
        if has_head or spec.layers == "windows":
            lines += wrapped(target, "target = ")
            target = Code("target")
        lines += self._target(target)
        if has_head:
            self.uses.add("eagle_head")
            head = Call("eagle_head", [target], head_options(spec))
            saved = Call("save_model", [_folder("head"), head, spec.vocab_size], {"num_layers": 1})
            lines += wrapped(saved, "head = ")
        if self._has_grammars():
            self.uses.add("save_tokenizer")
            lines += call("save_tokenizer", [Code("model"), characters(spec.vocab_size)])
        return lines

    def _target(self, target: Call | Code) -> list[str]:
        """Return the lines that save the target model, preceded by its draft model if it has one."""
        spec, lines = self.spec, list[str]()
        saved = Call("save_model", [_folder("model"), target, spec.vocab_size])
        if spec.layers != "windows":
            return wrapped(saved, "model = ")
        self.uses |= {"with_window_layers", "add_windows"}
        if (speculative_config(spec) or {}).get("model") == Code("draft"):
            lines += wrapped(Call("save_model", [_folder("draft"), target, spec.vocab_size]), "draft = ")
        seed = {"seed": weights_seed("windows good", spec.vocab_size)}
        layers = Call("with_window_layers", [target], seed)
        saved = Call("save_model", [_folder("model"), layers, spec.vocab_size], {"num_layers": _WINDOW_LAYERS})
        return [*lines, *wrapped(saved, "model = "), *call("add_windows", [Code("model"), spec.window])]

    def _has_grammars(self) -> bool:
        return any(submit.params.grammar for submit in self.trace.submits())

    def _has_no_pinned_memory(self) -> bool:
        return self.spec.num_speculative_tokens > 0 and self.spec.drafter == "ngram_gpu"

    def _asynchrony(self, is_asynchronous: bool) -> dict[str, object]:
        return {"async_scheduling": is_asynchronous}

    def _speculation(self) -> dict[str, object]:
        found = speculative_config(self.spec)
        return {"speculative_config": found} if found is not None else {}

    def _options(self) -> dict[str, object]:
        """Return engine arguments, except `async_scheduling` and `speculative_config`."""
        options = engine_options(self.spec, self.window_blocks_max)
        if self._has_grammars():
            options["skip_tokenizer_init"] = False
        transfer = self.spec.transfer
        if transfer is not None:
            self.uses.add("prefix_connector")
            is_asynchronous = {"is_asynchronous": transfer.loads == "asynchronous"}
            options["kv_transfer_config"] = Call("prefix_connector", (), is_asynchronous)
        return options

    def _made(self, variable: str, options: Mapping[str, object], rest: Code | None = None) -> list[str]:
        """Return the lines that create an engine or scheduler; `rest` is its last argument."""
        self.uses.add(f"make_{self.level}")
        given = [Code(f"{name}={literal(each)}") for name, each in options.items()]
        made = Call(f"make_{self.level}", [Code("model"), *given, rest]) if rest is not None else None
        lines = wrapped(made or Call(f"make_{self.level}", [Code("model")], options), f"{variable} = ")
        return [*lines, "engine.counts = []"] if self.assertion.watches == "counts" and variable == "engine" else lines

    def _request_id(self) -> str:
        assert self.assertion.submit is not None, "the assertion is about one request's outputs"
        return ids_of(self.trace)[self.assertion.submit]

    def _end(self) -> list[str]:
        """Return the test's last lines: the outputs to check, then the assertions."""
        submit, lines = self.assertion.submit, list(self.assertion.lines)
        if submit is None:
            return lines
        alone = self._alone(submit) if self.assertion.other == "alone" else []
        parts, outputs = self._parts(submit), f"engine.outputs[{literal(self._request_id())}]"
        if len(parts) == 1:
            return [f"outputs = {outputs}", *alone, *lines]
        self.uses.add("outputs_by_input")
        return [f"parts = outputs_by_input({outputs})", f"outputs = parts[{parts.index(submit)}]", *alone, *lines]

    def _parts(self, submit: Submit) -> Sequence[Submit]:
        if submit.session is None:
            return [submit]
        return [each for each in self.trace.submitted() if each.session == submit.session]

    def _alone(self, submit: Submit) -> list[str]:
        """Return lines that run the same prompt alone in a synchronous engine."""
        parts = self._parts(submit)
        lines = ["# The same prompt alone, in a synchronous engine without speculation."]
        before = parts[: parts.index(submit)]
        assert isinstance(submit.prompt, tuple), "the trace is explicit"
        prompt: object = submit.prompt
        if before:
            lines.append("whole = []")
            for index, part in enumerate(before):
                assert isinstance(part.prompt, tuple), "the trace is explicit"
                lines += wrapped(part.prompt, "whole += ")
                lines.append(f"whole += tokens_of(parts[{index}])[:-1]")
            lines += wrapped(submit.prompt, "whole += ")
            prompt = Code("whole")
        lines += self._made("alone", self._asynchrony(False) | self._options())
        sampling = sampling_options(submit, self.spec.vocab_size, self.features)
        lines += call("add_request", [Code("alone"), submit.request, prompt], sampling)
        if submit.params.grammar:
            lines += call("wait_for_grammar", [Code("alone"), submit.request])
        self.uses |= {"tokens_of", "drain", "add_request"}
        return [*lines, "drain(alone)", f"others = alone.outputs[{literal(submit.request)}]"]


def _folder(name: str) -> Code:
    return Code(f'tmp_path / "{name}"')


def exported_test(
    finding: Finding, features: RequestFeatures, runs_on_cpu: bool, window_blocks_max: int
) -> ExportedTest:
    """Return the exported test of a finding: the text of its file and of its test function.

    `runs_on_cpu` says whether the model runner runs on a CPU; `window_blocks_max` is added to the block pool.

    Raises:
        ExportError: no test on a plain CPU reproduces the finding; the message has the reason.
    """
    level = level_of(finding, runs_on_cpu)
    check_spec(finding.trace.spec)
    if level == "engine":
        check_seeds(finding.trace)
    writer = Writer(finding.trace, level, assertion_of(finding, level), features, window_blocks_max)
    body = "\n".join(writer.lines(stem_of(finding.name)))
    files = tuple(_DRIVER / f"{name}.py" for name in (*_FILES[level], *writer.extra_files()))
    imports, parts = source_of(files, writer.uses, "vllm")
    head = "\n\n".join([_docstring(finding, level), *imports, "\n".join(_ENVIRONMENT)])
    constants, *functions = parts
    if constants:
        head = f"{head}\n\n{constants}"
    text = "\n\n\n".join([head, *functions, body]) + "\n"
    return ExportedTest(text, body, "vLLM", "vLLM and pytest, no GPU and no download")


def _docstring(finding: Finding, level: Level) -> str:
    what = "A scheduler without a model" if level == "scheduler" else "An engine in this process, on a CPU"
    return docstring(
        f"{finding.title[:1].upper()}{finding.title[1:]}.",
        f"{what}. Fails on vLLM {finding.version or 'as it was'}.",
        f"Written by `specstorm export` from {finding.source}.",
    )
