"""Example of each command, shown at the end of its help; examples may name any engine."""

from collections.abc import Mapping

EXAMPLES: Mapping[str, str] = {
    "run": "run scenarios/smoke --workers 2 -k 'abort and not drop'",
    "hunt": "hunt --minutes 5 --seed 7 --out campaigns/mine",
    "gate": "gate --engine vllm --engine-path ~/src/vllm --minutes 20",
    "replay": "replay campaigns/mine/artefacts/tokens-0a1b2c3d.yaml",
    "shrink": "shrink campaigns/mine/artefacts/tokens-0a1b2c3d.yaml --limit 200",
    "bisect": "bisect findings/vllm_staged_twice/trace.yaml --engine vllm",
    "export": "export findings/vllm_staged_twice/trace.yaml --out exported",
    "triage": "triage 'tokens sampled' --state assigned --to ada --until 2027-01-31",
    "report": "report campaigns/mine --out page",
    "nightly": "nightly --hours 8 --out campaigns/tonight",
    "watch": "watch campaigns/tonight --every 10",
    "merge": "merge campaigns/monday campaigns/tuesday --out campaigns/week",
    "submit": "submit hunt --minutes 60 --out campaigns/night",
    "attach": "attach specstorm-hunt-1a2b3c4d",
    "extract": "extract job.log",
    "explain": "explain tokens",
    "faults list": "faults list --plane drafts",
    "faults show": "faults show vllm-38556-backup-token",
    "faults measure": "faults measure vllm-38556-backup-token --trials 3",
    "schema": "schema scenario",
    "doctor": "doctor",
    "validate": "validate scenarios/smoke",
}
